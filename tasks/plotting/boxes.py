"""Horizontal boxes of the clients' values, one below the other: one drawing for reports, benchmarks and comparisons."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.plotting.style import BLUE, INK, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ABOVE = 20  # more points would hide the box, so they are drawn under it


def draw_boxes(
    axes: "Axes",
    boxes: Sequence[tuple[str, Sequence[float]]],
    colours: Sequence[Sequence[str]] | None = None,
    fontsize: float | None = None,
) -> None:
    """Draw a box of quartiles for each name, the first at the top: median in orange, mean as a diamond.

    Args:
        axes: Where to draw.
        boxes: Names and their finite values, at least one. Names are drawn as they are: escape those from outside.
        colours: Of each box's values, which are then drawn as points; without them only outliers are.
        fontsize: Of the names.
    """
    line = {"color": BLUE, "linewidth": 1.4}
    mean = {"marker": "D", "markerfacecolor": INK, "markeredgecolor": INK, "markersize": 4}
    axes.boxplot(
        [list(values) for _, values in boxes], orientation="horizontal", widths=0.5, showmeans=True,
        showfliers=colours is None, boxprops=line, whiskerprops=line, capprops=line,
        medianprops={"color": ORANGE, "linewidth": 2.2}, meanprops=mean, flierprops={"markersize": 3},
    )  # fmt: skip
    for place, ((_, values), own) in enumerate(zip(boxes, colours or (), strict=False), 1):
        heights = place + 0.32 * (np.arange(len(values)) % 5 - 2) / 4  # no draw: the same points in every report
        above = len(values) <= MAX_ABOVE
        axes.scatter(list(values), heights, s=18 if above else 12, c=list(own), alpha=0.8, zorder=3 if above else 0)
    axes.set_yticks(range(1, len(boxes) + 1), [name for name, _ in boxes], fontsize=fontsize)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
