"""The plots of a report, as PNG files 9 inches wide."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, client_quality, last_evaluated
from tasks.core.summary_statistics import distribution
from tasks.evaluation.chance import CHANCE
from tasks.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, RED, SKY, new_figure, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CORRECT, WRONG, MISSED = "#00795A", "#C24E00", "#7B3294"  # dark enough for small text
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#8C6D31", "#5254A3", "#7F7F7F", "#BCBD22")


def learning_curve(records: Sequence[RoundRecord], path: Path) -> None:
    """Plot average precision and F1 on the test set by round, with their chance levels (dotted)."""
    rounds = [record.round for record in records]
    with new_figure(path, 3.9) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        plot_metrics(left, records, (("macro_ap", "macro AP", BLUE, "-"), ("micro_ap", "micro AP", SKY, "--")))
        last = last_evaluated(records).metrics
        _chance_lines(left, last, (("macro_ap", "macro AP", BLUE), ("micro_ap", "micro AP", SKY)))
        _chance_lines(right, last, (("cf1", "CF1", GREEN), ("micro_f1", "micro F1", ORANGE)))
        best = best_round(records)
        value = next(record.metrics.get("macro_ap", math.nan) for record in records if record.round == best)
        if math.isfinite(value):
            label = f"best by validation: round {best}, {value:.3f}"
            left.plot([best], [value], "*", color=ORANGE, markersize=13, label=label)
        plot_metrics(
            right,
            records,
            (
                ("cf1", "CF1", GREEN, "-"),
                ("mean_f1", "mean of class F1", PURPLE, "--"),
                ("micro_f1", "micro F1", ORANGE, "-."),
            ),
        )
        for axes, title in ((left, "Average precision"), (right, "F1")):
            axes.set(title=title, xlabel="round", ylim=(0, 1.02), xlim=_span(rounds))
            _integer_ticks(axes)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)


def _chance_lines(axes: "Axes", metrics: Mapping[str, float], lines: Sequence[tuple[str, str, str]]) -> None:
    """Plot chance levels, which are the same in every round."""
    for key, label, colour in lines:
        level = metrics.get(CHANCE + key, math.nan)
        if math.isfinite(level):
            axes.axhline(level, color=colour, linestyle=":", label=f"{label} by chance, {level:.3f}")


def plot_metrics(axes: "Axes", records: Sequence[RoundRecord], lines: Sequence[tuple[str, str, str, str]]) -> None:
    """Plot metrics of the evaluated rounds as lines; the other rounds leave no gap."""
    evaluated = [record for record in records if record.metrics]
    rounds = [record.round for record in evaluated]
    marker = "o" if len(evaluated) <= 30 else ""
    for key, label, colour, style in lines:
        values = [record.metrics.get(key, math.nan) for record in evaluated]
        axes.plot(rounds, values, color=colour, linestyle=style, marker=marker, markersize=3.5, label=label)


def per_class_bars(record: RoundRecord, path: Path) -> None:
    """Plot AP of each class, best first, with the prevalence of the class, which is the chance level."""
    rows = sorted(record.per_class.items(), key=lambda item: (-np.nan_to_num(item[1]["ap"], nan=-1), item[0]))
    places = np.arange(len(rows))
    with new_figure(path, 1.3 + 0.27 * len(rows)) as figure:
        axes = figure.subplots()
        ap = [cells["ap"] for _, cells in rows]
        axes.barh(places, np.nan_to_num(ap), 0.7, color=BLUE, label="AP")
        shares = [cells["prevalence"] for _, cells in rows]
        axes.plot(shares, places, "|", color=ORANGE, markersize=11, markeredgewidth=2.6, label="prevalence")
        for place, value, (_, cells) in zip(places, ap, rows, strict=True):
            absent = not math.isfinite(value)
            text = "no positive test image" if absent else f"{value:.2f}   {cells['support']:.0f} images"
            start = max(0.0 if absent else value, cells["prevalence"])
            axes.text(start + 0.015, float(place), text, va="center", color=GREY if absent else INK, fontsize=8)
        axes.set_yticks(places, [one_line(name) for name, _ in rows])
        axes.set(xlim=(0, 1.2), ylim=(len(rows) - 0.4, -0.6), title=f"Classes after round {record.round}")
        axes.set_xticks(np.linspace(0, 1, 6))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, frameon=False)


def client_bars(record: RoundRecord, path: Path) -> None:
    """Plot macro-AP of every client that has one, the worst first, with the mean and that of the worst decile."""
    quality = sorted(client_quality(record).items(), key=lambda item: (item[1], item[0]))
    values = [value for _, value in quality]
    found = distribution(values, low_is_worst=True)
    few = len(quality) <= 40  # more names are illegible
    with new_figure(path, 4.6 if few else 3.9) as figure:
        axes = figure.subplots()
        axes.bar(range(len(values)), values, 0.8 if few else 1.0, color=SKY)
        for key, label, colour, style in (
            ("mean", "mean", ORANGE, "--"),
            ("worst_decile", "mean of the worst decile", RED, ":"),
        ):
            axes.axhline(found[key], color=colour, linestyle=style, label=f"{label}, {found[key]:.3f}")
        if few:
            axes.set_xticks(
                range(len(quality)), [one_line(client, 14) for client, _ in quality], rotation=60, ha="right"
            )
            axes.tick_params(axis="x", length=0)
        absent = len(record.per_client) - len(quality)
        without = f"; {absent} more without a positive test image" if absent else ""
        axes.set(xlim=(-0.6, len(values) - 0.4), ylim=(0, 1.02), ylabel="macro AP")
        axes.set(title=f"Clients after round {record.round}", xlabel=f"{len(quality)} clients, worst first{without}")
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def clusters_by_round(records: Sequence[RoundRecord], path: Path) -> None:
    """Plot the cluster of each client by round, a row per client. Grey: not in the round; a cross: dropped."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    clients = sorted({client for record in records for client in [*record.participants, *record.cluster_of]})
    row = {client: index for index, client in enumerate(clients)}
    grid = np.full((len(clients), len(records)), np.nan)
    lost: list[tuple[int, int]] = []
    for column, record in enumerate(records):
        for client, group in record.cluster_of.items():
            grid[row[client], column] = group
        lost += [(column, row[entry.client]) for entry in record.dropped if entry.client in row]
    count = int(np.nanmax(grid)) + 1 if np.isfinite(grid).any() else 0
    with new_figure(path, min(2.0 + 0.22 * len(clients), 14)) as figure:
        axes = figure.subplots()
        colours = ListedColormap(_colours(max(count, 1))).with_extremes(bad=PALE)
        axes.pcolormesh(
            np.ma.masked_invalid(grid),
            cmap=colours,
            vmin=-0.5,
            vmax=max(count, 1) - 0.5,
            edgecolors="white",
            linewidth=0.6,
        )
        if lost:
            axes.plot(*(np.array(lost).T + 0.5), "x", color=INK, markersize=6)
        every = max(1, math.ceil(len(clients) / 50))
        axes.set_yticks(np.arange(0, len(clients), every) + 0.5, [one_line(client) for client in clients[::every]])
        step = max(1, math.ceil(len(records) / 25))
        axes.set_xticks(np.arange(0, len(records), step) + 0.5, [str(record.round) for record in records[::step]])
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set(title="Clusters of clients", xlabel="round")
        keys: list[Any] = [Patch(color=colours(group), label=f"cluster {group}") for group in range(count)]
        keys.append(Patch(color=PALE, label="not in the round"))
        if lost:
            keys += axes.plot([], [], "x", color=INK, markersize=6, label="dropped")
        figure.legend(handles=keys, loc="outside lower center", ncols=6, frameon=False)


def traffic(records: Sequence[RoundRecord], path: Path) -> None:
    """Plot bytes to and from the clients by round, stacked by stage; the line also counts repeated models."""
    stages = list(dict.fromkeys(log.name for record in records for log in record.stages))
    rounds = np.array([record.round for record in records])
    colours = dict(zip(stages, _colours(len(stages)), strict=True))
    with new_figure(path, 3.9) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, key, title in zip(
            panels, ("bytes_down", "bytes_up"), ("To the clients", "From the clients"), strict=True
        ):
            floor = np.zeros(len(records))
            for stage in stages:
                sizes = np.array([_stage_bytes(record, key, stage) for record in records])
                if sizes.any():
                    axes.bar(rounds, sizes, 0.8, bottom=floor, color=colours[stage], label=one_line(stage))
                floor += sizes
            if key == "bytes_down":
                naive = [_stage_bytes(record, "bytes_down_naive") for record in records]
                axes.hlines(
                    naive,
                    rounds - 0.4,
                    rounds + 0.4,
                    color=INK,
                    linewidth=1.6,
                    label="with repeated models",
                )
            axes.set(title=title, xlabel="round", xlim=_span(list(rounds)))
            _integer_ticks(axes)
        panels[0].set_ylabel("MB")
        keys = {
            label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(keys.values(), keys.keys(), loc="outside lower center", ncols=5, frameon=False)


def _stage_bytes(record: RoundRecord, key: str, stage: str | None = None) -> float:
    return sum(getattr(log, key) for log in record.stages if stage in (None, log.name)) / 1e6


def prediction_sheet(
    images: np.ndarray,
    truths: np.ndarray,
    scores: np.ndarray,
    classes: Sequence[str],
    path: Path,
    threshold: float = 0.5,
) -> None:
    """Plot test images with their labels: correct, wrong and missed ones, each with its score.

    Args:
        images: uint8 [n,3,S,S].
        truths: [n,C], non-zero where the label is present.
        scores: [n,C] in [0,1].
        classes: The C labels.
        path: The PNG file.
        threshold: Lowest score of a predicted label.
    """
    columns = 3
    rows = math.ceil(len(images) / columns)
    with new_figure(path, 0.45 + 1.5 * rows) as figure:
        grid = figure.subplots(rows, 2 * columns, squeeze=False, width_ratios=[1, 1.05] * columns)
        for axes in grid.flat:
            axes.axis("off")
        for index, (image, truth, score) in enumerate(zip(images, truths, scores, strict=True)):
            plot, text_axes = grid[index // columns][2 * (index % columns) :][:2]
            plot.imshow(image.transpose(1, 2, 0))
            plot.set_anchor("N")
            for line, (text, colour) in enumerate(prediction_lines(truth, score, classes, threshold)):
                text_axes.text(
                    -0.12, 1.0 - 0.14 * line, text, color=colour, va="top", fontsize=8, transform=text_axes.transAxes
                )
        for number, (text, colour) in enumerate(
            ((f"✓ correct (score ≥ {threshold:g})", CORRECT), ("✗ wrong", WRONG), ("○ missed", MISSED))
        ):
            figure.text(0.02 + 0.26 * number, 0.995, text, color=colour, va="top", fontsize=10)
        figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.3 / figure.get_figheight()))


def prediction_lines(
    truth: np.ndarray, score: np.ndarray, classes: Sequence[str], threshold: float, most: int = 7
) -> list[tuple[str, str]]:
    """Return a line and its colour for every label that is present or predicted, highest score first."""
    lines = []
    for index in np.argsort(-score, kind="stable"):
        present, predicted = bool(truth[index]), bool(score[index] >= threshold)
        if present or predicted:
            hit = ("✓", CORRECT) if present else ("✗", WRONG)
            symbol, colour = hit if predicted else ("○", MISSED)
            lines.append((f"{symbol} {score[index]:.2f} {one_line(classes[index], 17)}", colour))
    if not lines:
        return [("no label, none predicted", GREY)]
    hidden = len(lines) - most
    return lines if hidden <= 0 else [*lines[: most - 1], (f"and {hidden + 1} more", GREY)]


def _colours(count: int) -> list[Any]:
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    import matplotlib as mpl

    return [mpl.colormaps["turbo"](value) for value in np.linspace(0.03, 0.97, count)]


def _span(rounds: Sequence[int]) -> tuple[float, float]:
    return min(rounds) - 0.6, max(rounds) + 0.6


def _integer_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))
