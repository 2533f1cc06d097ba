"""The paper's kinds of plots: precision and recall of every row, F1 of every class for a few rows."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flows.papers.replicate.results import RowResult
from tasks.plotting.style import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, new_figure, one_line

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)


def precision_recall(rows: Sequence[RowResult], path: Path) -> None:
    """Plot macro and micro precision and recall of every row at equal local epochs; thin lines: standard deviation."""
    positions, names = np.arange(len(rows)), [one_line(row.name) for row in rows]
    with new_figure(path, 1.6 + 0.36 * len(rows)) as figure:
        for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("macro", "micro"), strict=True):
            for offset, colour, name in ((-0.19, BLUE, "precision"), (0.19, ORANGE, "recall")):
                found = [row.mean_and_std("epochs", f"{kind}_{name}") for row in rows]
                means = [100 * mean if math.isfinite(mean) else 0.0 for mean, _ in found]
                errors = [100 * (std or 0.0) for _, std in found]
                lines = errors if any(errors) else None
                axes.barh(
                    positions + offset, means, 0.36, xerr=lines, color=colour, label=name, error_kw={"linewidth": 1}
                )
            axes.set(title=f"{kind.capitalize()} average", xlabel="percent", xlim=(0, 100))
            axes.set_yticks(positions, names)
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


def class_bars(rows: Sequence[RowResult], path: Path) -> None:
    """Plot the F1 of every class with positives, one bar per row: mean over the seeds at equal local epochs.

    Args:
        rows: At most six rows with runs.
        path: The PNG file.
    """
    rows = rows[: len(_COLOURS)]
    per_class = [_class_f1(row) for row in rows]
    names = [name for name in per_class[0] if any(math.isfinite(found.get(name, math.nan)) for found in per_class)]
    positions, width = np.arange(len(names)), 0.8 / len(rows)
    with new_figure(path, min(1.6 + 0.19 * len(names) * max(len(rows), 2), 24)) as figure:
        axes = figure.subplots()
        for number, (row, found) in enumerate(zip(rows, per_class, strict=True)):
            values = [100 * value if math.isfinite(value := found.get(name, math.nan)) else 0.0 for name in names]
            middle = positions + (number - (len(rows) - 1) / 2) * width
            axes.barh(middle, values, width, color=_COLOURS[number], label=one_line(row.name))
        axes.set_yticks(positions, [one_line(name) for name in names])
        axes.set(title="F1 by class", xlabel="percent", xlim=(0, 100), ylim=(len(names) - 0.4, -0.6))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)


def _class_f1(row: RowResult) -> dict[str, float]:
    """Return class -> mean F1 over the row's seeds; NaN for a class without positives."""
    tables = [run.at("epochs").per_class for run in row.runs]
    return {
        name: float(np.mean([table[name]["f1"] for table in tables])) if cells["support"] else math.nan
        for name, cells in tables[0].items()
    }
