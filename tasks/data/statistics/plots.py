"""Plots and a table of the partition's statistics: readable for 1 to 1,000 clients and 1 to 80 labels.

With too many clients for their names, plots omit the names and are sorted; with too many labels, they show the most
frequent ones. The title states both. The table and the JSON are complete.
"""

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.files import write_text
from tasks.core.json_files import write_json
from tasks.data.statistics.heterogeneity import cooccurrence, label_counts, rows_of, statistics
from tasks.data.statistics.heterogeneity_table import as_markdown
from tasks.plotting.style import BLUE, GREY, INK, WIDTH, new_figure, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEATMAP, SIZES, COOCCURRENCE = "label_client.png", "client_sizes.png", "cooccurrence.png"
TABLE, FIGURES = "heterogeneity.md", "heterogeneity.json"
TITLES = {HEATMAP: "Labels by client", SIZES: "Images by client", COOCCURRENCE: "Co-occurring labels"}
FILES = (*TITLES, TABLE, FIGURES)
_MAX_NAMES, _MAX_LABELS, _MAX_PANELS, _ACROSS = 60, 80, 12, 4
_FEW_LABELS = 20  # with room for slanted names and for numbers in the cells


def write_partition_figures(
    targets: np.ndarray,
    owners: np.ndarray,
    ids: list[str],
    classes: list[str],
    folder: Path,
    what: str = "client",
    note: str = "",
    annotated: np.ndarray | None = None,
    unlabelled: np.ndarray | None = None,
) -> None:
    """Write ``label_client.png``, ``client_sizes.png``, ``cooccurrence.png``, ``heterogeneity.md`` and ``.json``.

    If no image has two labels, co-occurrence is undefined and has no plot.

    Args:
        targets: uint8 [n, C], 1 where image i has label c.
        owners: str [n], the client (or site) that holds image i.
        ids: The K clients, each with at least one image.
        classes: The C labels.
        folder: Output folder.
        what: Name of an owner: client or site.
        note: A sentence on absent clients or sites.
        annotated: As ``statistics``.
        unlabelled: As ``statistics``.
    """
    figures = statistics(targets, owners, ids, classes, annotated, unlabelled)
    sizes, negatives, hidden = (
        np.array([figures["clients"][client][name] for client in ids]) for name in ("images", "negatives", "unlabelled")
    )
    client_sizes(sizes, negatives, ids, folder / SIZES, what, note, hidden)
    if annotated is not None:
        targets, owners = targets[annotated], owners[annotated]
    judged = np.array([len(rows) for rows in rows_of(owners, ids)])
    label_client_heatmap(label_counts(targets, owners, ids), judged, ids, classes, folder / HEATMAP, what)
    if figures["cooccurrence"] is not None:
        cooccurrence_panels(targets, owners, figures, classes, folder / COOCCURRENCE, what)
    write_text(folder / TABLE, as_markdown(figures, classes, what, note))
    write_json(folder / FIGURES, figures)


def label_client_heatmap(
    counts: np.ndarray, sizes: np.ndarray, clients: list[str], classes: list[str], path: Path, what: str = "client"
) -> None:
    """Write a heatmap: colour is the share of a client's images with a label, the number in a cell their count.

    With more than 60 clients, rows have no names and are sorted by their most frequent label.

    Args:
        counts: Images per client and label, [K, C].
        sizes: Images per client, [K].
        clients: K names.
        classes: C names.
        path: The PNG file.
        what: Name of an owner.
    """
    shares = counts / np.maximum(sizes, 1)[:, None]
    columns, note = _most_frequent(counts.sum(axis=0))
    K, C = len(clients), len(columns)
    named, roomy = K <= _MAX_NAMES, C <= _FEW_LABELS
    rows = np.arange(K) if named else _by_top_label(shares[:, columns])
    shown = shares[np.ix_(rows, columns)]
    height = (1.9 + 0.27 * K if named else 10.5) if roomy else (2.4 + 0.2 * K if named else 11.0)
    with new_figure(path, max(2.6, height), 2.9 + C * (0.45 if roomy else 0.17)) as figure:
        axes = figure.add_subplot()
        top = max(float(shown.max()), 1e-9)
        image = axes.imshow(shown, cmap="viridis", vmin=0, vmax=top, aspect="auto", interpolation="nearest")
        _label_ticks(axes, [classes[c] for c in columns])
        if named:
            _name_ticks(axes, [f"{one_line(clients[k], 20)} ({sizes[k]})" for k in rows], small=not roomy)
        else:
            _name_ticks(axes, [])
            axes.set(ylabel=f"{K} {what}s")
        title = f"Images per {what} and label{note}" + ("" if named else f"; {what}s by their most frequent label")
        axes.set_title(title, loc="left", fontsize=9 if C < 12 else 10, wrap=True)
        if named and roomy:
            for (row, column), share in np.ndenumerate(shown):
                number = str(counts[rows[row], columns[column]])
                colour = INK if share > 0.6 * top else "white"
                axes.text(column, row, number, ha="center", va="center", fontsize=6, color=colour)
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=30)
        bar.set_label(f"share of the {what}'s images")


def client_sizes(
    sizes: np.ndarray,
    negatives: np.ndarray,
    clients: list[str],
    path: Path,
    what: str = "client",
    note: str = "",
    unlabelled: np.ndarray | None = None,
) -> None:
    """Write a bar chart of each client's images with and without a label; over 60 clients: by size, without names.

    Where images are ``unlabelled`` [K], the parts are labelled images, negatives among them, and unlabelled ones.
    ``note`` is a sentence on absent clients or sites, written below.
    """
    K = len(clients)
    named = K <= _MAX_NAMES
    rows = np.arange(K) if named else np.argsort(-sizes, kind="stable")
    some, others, names = sizes - negatives, negatives, ("with a label", "without any label")
    if unlabelled is not None and unlabelled.any():
        some, others, names = sizes - unlabelled, unlabelled, ("labelled", "unlabelled")
    first, second, places = some[rows], others[rows], np.arange(K)
    below = "".join(f"\n{one_line(line, 110)}" for line in textwrap.wrap(note, 100))
    with new_figure(path, max(2.2, 1.2 + 0.2 * K) if named else 4.0) as figure:
        axes = figure.add_subplot()
        parts = [(first, 0 * first, BLUE, names[0]), (second, first, GREY, names[1])]
        for values, before, colour, name in parts if second.any() else parts[:1]:
            if named:
                axes.barh(places, values, 0.75, left=before, color=colour, label=name)
            else:
                axes.bar(places, values, 1.0, bottom=before, color=colour, label=name)
        if named:
            _name_ticks(axes, [one_line(client) for client in clients])
            axes.set(xlabel=f"images{below}", ylim=(K - 0.4, -0.6))
            for place, size in enumerate(sizes.tolist()):
                axes.text(size, place, f" {size}", va="center", fontsize=7)
        else:
            axes.set(xlabel=f"{K} {what}s, largest first{below}", ylabel="images", xlim=(-0.5, K - 0.5))
        axes.grid(visible=False, axis="y" if named else "x")
        smallest, middle, largest = int(sizes.min()), float(np.median(sizes)), int(sizes.max())
        axes.set_title(f"Images per {what}: smallest {smallest}, median {middle:g}, largest {largest}")
        if second.any():
            figure.legend(loc="outside lower center", ncols=2, frameon=False)


def cooccurrence_panels(
    targets: np.ndarray,
    owners: np.ndarray,
    figures: dict[str, Any],
    classes: list[str],
    path: Path,
    what: str = "client",
) -> None:
    """Write matrices of phi of every pair of labels: of all images, and of at most 12 clients, farthest first.

    Args:
        targets: uint8 [n, C].
        owners: str [n].
        figures: Their ``statistics``, with co-occurrence.
        classes: The C labels.
        path: The PNG file.
        what: Name of an owner.
    """
    columns, note = _most_frequent(targets.sum(axis=0, dtype=np.int64))
    clients = figures["clients"]
    distances = {key: clients[key]["cooccurrence_distance"] for key in clients if len(clients) > 1}
    known = sorted((key for key in distances if distances[key] is not None), key=lambda key: (-distances[key], key))
    far = known[:_MAX_PANELS]
    C, roomy, down = len(columns), len(columns) <= _FEW_LABELS, math.ceil(len(far) / _ACROSS)
    above, below = (max(4.6, 2.6 + 0.3 * C) if roomy else min(9.4, 3.6 + 0.16 * C)), 0.3 + 2.35 * down
    with new_figure(path, above + (below if far else 0), max(WIDTH, above + 0.6)) as figure:
        parts: Any = figure.subfigures(2, 1, height_ratios=[above, below]) if far else [figure]
        axes, whole = parts[0].add_subplot(), cooccurrence(targets[:, columns])
        top = max(0.3, float(np.nanmax(np.abs(whole - np.eye(C)), initial=0, where=~np.isnan(whole))))
        image = _matrix(axes, whole, top)
        names = [classes[c] for c in columns]
        _label_ticks(axes, names)
        _name_ticks(axes, [one_line(name) for name in names], small=not roomy)
        axes.set_title(f"Co-occurrence of labels (phi), all images{note}")
        bar = parts[0].colorbar(image, ax=axes, fraction=0.04, pad=0.02, aspect=30, extend="both")
        bar.set_label("phi: 0 independent, grey undefined")
        if not far:
            return
        which = f"The {what}s" if len(far) == len(clients) else f"{len(far)} of {len(clients)} {what}s"
        parts[1].suptitle(f"{which}, farthest from it first, with the distance", x=0.01, ha="left", fontsize=10)
        panels = parts[1].subplots(down, _ACROSS, squeeze=False).ravel()
        for panel in panels:
            panel.axis("off")
        for key, rows, panel in zip(far, rows_of(owners, far), panels, strict=False):
            _matrix(panel, cooccurrence(targets[rows][:, columns]), top)
            panel.set_title(f"{one_line(key, 18)}: {distances[key]:.2f}, {clients[key]['images']} images", fontsize=7.5)


def _matrix(axes: "Axes", phi: np.ndarray, top: float) -> Any:
    """Plot a phi matrix in colours from -top to top; the diagonal and undefined pairs are grey."""
    import matplotlib as mpl

    colours = mpl.colormaps["RdBu_r"].with_extremes(bad="#D8D8D8")
    off_diagonal = np.ma.masked_invalid(np.where(np.eye(len(phi), dtype=bool), np.nan, phi))
    axes.grid(visible=False)
    return axes.imshow(off_diagonal, cmap=colours, vmin=-top, vmax=top, interpolation="nearest")


def _label_ticks(axes: "Axes", names: list[str]) -> None:
    roomy = len(names) <= _FEW_LABELS
    rotation: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if roomy else {"rotation": 90}
    axes.set_xticks(range(len(names)), [one_line(name) for name in names], fontsize=8 if roomy else 6.5, **rotation)


def _name_ticks(axes: "Axes", names: list[str], small: bool = False) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=6.5 if small else 8)
    axes.grid(visible=False)
    axes.tick_params(length=0)


def _most_frequent(counts: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the columns of the labels to plot, in their order, and a remark for the title."""
    if len(counts) <= _MAX_LABELS:
        return np.arange(len(counts)), ""
    chosen = np.sort(np.argsort(-counts, kind="stable")[:_MAX_LABELS])
    return chosen, f", the {_MAX_LABELS} most frequent of {len(counts)} labels"


def _by_top_label(shares: np.ndarray) -> np.ndarray:
    """Sort rows by their most frequent label, and within it by its share."""
    return np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
