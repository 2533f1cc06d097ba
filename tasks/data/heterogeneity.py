"""How far the clients are from alike: label counts, distances, and the picture of both."""

from pathlib import Path
from typing import Any

import numpy as np

# Label names may be Chinese; matplotlib's own font has no such letters.
_CJK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "SimHei",
    "Microsoft YaHei",
)


def label_counts(targets: np.ndarray, owners: np.ndarray, ids: list[str]) -> np.ndarray:
    """Images per client and label, int64 [K, C].

    Args:
        targets: [N, C], 1 where image n has label c.
        owners: str [N], the client that holds image n.
        ids: The K clients, in the order of the result's rows.
    """
    return np.array([targets[owners == client].sum(axis=0, dtype=np.int64) for client in ids])


def mean_js_distance(counts: np.ndarray) -> float:
    """Mean over clients of the Jensen-Shannon distance (base 2) to the pooled distribution, in [0, 1].

    Args:
        counts: [K, C], how often client k has category c; every row has a positive sum. Images without any label
            make a category of their own, so give them a column.
    """
    from scipy.spatial.distance import jensenshannon

    counts = np.asarray(counts, dtype=np.float64)
    assert (counts.sum(axis=1) > 0).all(), "a client without any count has no distribution"
    pooled = counts.sum(axis=0)
    # For equal distributions rounding can make the divergence -1e-17 and its root NaN.
    with np.errstate(invalid="ignore"):
        return float(np.mean([np.nan_to_num(jensenshannon(row, pooled, base=2)) for row in counts]))


def effective_clients(sizes: np.ndarray) -> float:
    """1 / sum of squared shares: K for equal sizes, 1 when one client holds everything."""
    shares = np.asarray(sizes, dtype=np.float64) / np.sum(sizes)
    return float(1 / np.sum(shares**2))


def label_client_heatmap(
    counts: np.ndarray, sizes: np.ndarray, clients: list[str], classes: list[str], path: Path
) -> None:
    """Write a PNG: colour is the share of a client's images that have a label, the number says how many.

    Args:
        counts: Images per client and label, [K, C].
        sizes: Images per client, [K], all positive.
        clients: K names.
        classes: C names.
        path: The picture.
    """
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    installed = {font.name for font in font_manager.fontManager.ttflist}
    family = ["DejaVu Sans", *(name for name in _CJK_FONTS if name in installed)]
    K, C = counts.shape
    figure = Figure(figsize=(2.6 + 0.55 * C, 1.9 + 0.34 * K), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shares = counts / np.asarray(sizes)[:, None]
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=max(shares.max(), 1e-9), aspect="auto")
    look: dict[str, Any] = {"family": family, "fontsize": 8, "parse_math": False}  # a $ in a name starts no formula
    axes.set_xticks(range(C), classes, rotation=40, ha="right", rotation_mode="anchor", **look)
    names = [f"{client} ({size})" for client, size in zip(clients, sizes, strict=True)]
    axes.set_yticks(range(K), names, **look)
    axes.set_title("Training images per client and label", fontsize=10)
    if K * C <= 600:
        for (k, c), count in np.ndenumerate(counts):
            colour = "black" if shares[k, c] > 0.6 * shares.max() else "white"
            axes.text(c, k, str(count), ha="center", va="center", fontsize=6.5, color=colour)
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label("share of the client's images", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    canvas.print_png(path)
