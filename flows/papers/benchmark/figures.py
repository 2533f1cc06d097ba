"""The plots of a benchmark's page: curves by round, and boxes of the clients' values, one panel for each cell."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flows.papers.benchmark.results import BenchmarkReport
from tasks.plotting.boxes import draw_boxes
from tasks.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY, integer_ticks, new_figure, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY, INK)


def write_figures(report: BenchmarkReport, folder: Path) -> dict[str, Path]:
    """Write the plots of the cells that compare rows' clients; return title -> PNG file.

    Cells count whose rows measure a mean over clients and have finished at least two rows.
    """
    cells = {}
    for cell in report.benchmark.cells:
        rows = [name for name, row in report.benchmark.rows.items() if row.cell == cell and report.finished(name)]
        rows = [name for name in rows if any(run.clients for run in report.finished(name))]
        if len(rows) > 1:
            cells[cell] = rows
    if not cells:
        return {}
    name, height = report.benchmark.name, 2.9 * math.ceil(len(cells) / 2)
    plots = {"By round": folder / f"{name}-rounds.png", "Clients": folder / f"{name}-clients.png"}
    for path, draw, more in ((plots["By round"], _curves, 0.8), (plots["Clients"], _boxes, 0.0)):
        with new_figure(path, height + more) as figure:
            panels = figure.subplots(math.ceil(len(cells) / 2), 2, squeeze=False).ravel()
            for axes, (cell, rows) in zip(panels, cells.items(), strict=False):
                draw(report, rows, axes)
                axes.set_title(f"{cell}: {one_line(report.benchmark.cells[cell])}", fontsize=9)
            for axes in panels[len(cells) :]:
                axes.set_visible(False)
    return plots


def _curves(report: BenchmarkReport, rows: Sequence[str], axes: "Axes") -> None:
    """Plot the mean over the seeds by round; unevaluated rounds leave no gap."""
    for number, name in enumerate(rows):
        runs = report.finished(name)
        length = min(len(run.curve) for run in runs)
        mean = np.mean([run.curve[:length] for run in runs], axis=0)
        known = np.flatnonzero(np.isfinite(mean))
        style = "-" if number < len(_COLOURS) else "--"
        title = one_line(report.benchmark.rows[name].title)
        axes.plot(known + 1, mean[known], style, color=_COLOURS[number % len(_COLOURS)], linewidth=1.2, label=title)
    axes.set(xlabel="round", ylabel="percent, mean over clients")
    axes.legend(frameon=False, fontsize=6, ncols=2)
    integer_ticks(axes)


def _boxes(report: BenchmarkReport, rows: Sequence[str], axes: "Axes") -> None:
    """Plot the clients' values after the last round, all seeds together; a diamond is the mean."""
    boxes = [
        (one_line(report.benchmark.rows[name].title), [value for run in report.finished(name) for value in run.clients])
        for name in rows
    ]
    draw_boxes(axes, boxes, fontsize=7)
    axes.set(xlabel="percent of each client")
