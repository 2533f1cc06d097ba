"""Plots of metrics in a report: by round, by class, and the confusion matrix, as PNG files 9 inches wide."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tasks.core.problem import primary_metric
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, last_evaluated, megabytes
from tasks.evaluation.chance import CHANCE
from tasks.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, integer_ticks, new_figure, one_line, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Line(NamedTuple):
    """A metric in the learning curve; ``compared``: with its chance level."""

    metric: str
    label: str
    colour: str
    style: str
    compared: bool = True


# By the primary metric: title and lines of the two panels of the learning curve
PANELS = {
    "macro_ap": {
        "Average precision": (Line("macro_ap", "macro AP", BLUE, "-"), Line("micro_ap", "micro AP", SKY, "--")),
        "F1": (
            Line("cf1", "CF1", GREEN, "-"),
            Line("mean_f1", "mean of class F1", PURPLE, "--", compared=False),
            Line("micro_f1", "micro F1", ORANGE, "-."),
        ),
    },
    "accuracy": {
        "Accuracy": (Line("accuracy", "accuracy", BLUE, "-"), Line("top5_accuracy", "top-5", SKY, "--")),
        "Mean over the classes": (
            Line("macro_f1", "F1", GREEN, "-"),
            Line("macro_precision", "precision", PURPLE, "--", compared=False),
            Line("balanced_accuracy", "recall", ORANGE, "-."),
        ),
    },
}
MAX_CLASSES = 60  # beyond it the names and cells of a confusion matrix are illegible
MAX_NUMBERS = 20  # up to this many classes each cell shows its share


def learning_curve(records: Sequence[RoundRecord], path: Path) -> None:
    """Plot the metrics on the test set by round, with their chance levels (dotted): AP and F1, or accuracy and F1."""
    rounds, last = [record.round for record in records], last_evaluated(records).metrics
    main, best = primary_metric(last), best_round(records)
    with new_figure(path, 3.9) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (title, lines) in zip(panels, PANELS[main].items(), strict=True):
            present = [line for line in lines if line.metric in last or line.metric != "top5_accuracy"]
            plot_metrics(axes, records, present)
            _chance_lines(axes, last, [line for line in present if line.compared])
            axes.set(title=title, xlabel="round", ylim=(0, 1.02), xlim=span(rounds))
            integer_ticks(axes)
        value = next(record.metrics.get(main, math.nan) for record in records if record.round == best)
        if math.isfinite(value):
            label = f"best by validation: round {best}, {value:.3f}"
            panels[0].plot([best], [value], "*", color=ORANGE, markersize=13, label=label)
        for axes in panels:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)


def metric_by_traffic(records: Sequence[RoundRecord], budget: float | None, path: Path) -> None:
    """Plot the main metric on the test set against the MB that have travelled, and the run's budget."""
    main = primary_metric(last_evaluated(records).metrics)
    sent = np.cumsum([megabytes(record) for record in records])
    points = [(mb, record.metrics[main]) for mb, record in zip(sent, records, strict=True) if main in record.metrics]
    line = PANELS[main][next(iter(PANELS[main]))][0]
    with new_figure(path, 3.4) as figure:
        axes = figure.subplots()
        axes.plot(
            *zip(*points, strict=True), color=line.colour, marker="o" if len(points) <= 30 else "", markersize=3.5
        )
        axes.set(xlabel="MB of weights, to and from the clients, all rounds so far", ylabel=line.label, ylim=(0, 1.02))
        axes.set_xlim(left=0)
        if budget is not None:
            axes.axvline(budget, color=INK, linestyle=":", label=f"budget of the run, {budget:g} MB")
            axes.legend(frameon=False)


def _chance_lines(axes: "Axes", metrics: Mapping[str, float], lines: Sequence[Line]) -> None:
    """Plot chance levels, which are the same in every round."""
    for line in lines:
        level = metrics.get(CHANCE + line.metric, math.nan)
        if math.isfinite(level):
            axes.axhline(level, color=line.colour, linestyle=":", label=f"{line.label} by chance, {level:.3f}")


def plot_metrics(axes: "Axes", records: Sequence[RoundRecord], lines: Sequence[Line]) -> None:
    """Plot metrics of the evaluated rounds as lines; the other rounds leave no gap."""
    evaluated = [record for record in records if record.metrics]
    rounds = [record.round for record in evaluated]
    marker = "o" if len(evaluated) <= 30 else ""
    for line in lines:
        values = [record.metrics.get(line.metric, math.nan) for record in evaluated]
        axes.plot(
            rounds, values, color=line.colour, linestyle=line.style, marker=marker, markersize=3.5, label=line.label
        )


def per_class_bars(record: RoundRecord, path: Path) -> None:
    """Plot each class, best first: AP with its prevalence, which is the chance level, or recall with precision."""
    by_ap = any("ap" in cells for cells in record.per_class.values())
    main, other = (("ap", "AP"), ("prevalence", "prevalence")) if by_ap else (("recall", "recall"), ("precision",) * 2)
    rows = sorted(record.per_class.items(), key=lambda item: (-_known(item[1], main[0]), item[0]))
    places = np.arange(len(rows))
    with new_figure(path, 1.3 + 0.27 * len(rows)) as figure:
        axes = figure.subplots()
        values = [cells[main[0]] if cells["support"] else math.nan for _, cells in rows]
        axes.barh(places, np.nan_to_num(values), 0.7, color=BLUE, label=main[1])
        marks = [cells[other[0]] for _, cells in rows]
        axes.plot(marks, places, "|", color=ORANGE, markersize=11, markeredgewidth=2.6, label=other[1])
        for place, value, mark, (_, cells) in zip(places, values, marks, rows, strict=True):
            absent = not math.isfinite(value)
            text = "no positive test image" if absent else f"{value:.2f}   {cells['support']:.0f} images"
            start = max(0.0 if absent else value, mark)
            axes.text(start + 0.015, float(place), text, va="center", color=GREY if absent else INK, fontsize=8)
        axes.set_yticks(places, [one_line(name) for name, _ in rows])
        axes.set(xlim=(0, 1.2), ylim=(len(rows) - 0.4, -0.6), title=f"Classes after round {record.round}")
        axes.set_xticks(np.linspace(0, 1, 6))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, frameon=False)


def _known(cells: Mapping[str, float], key: str) -> float:
    """Return a class's value for sorting: -1 without test images or without a value."""
    value = cells[key] if cells["support"] else math.nan
    return value if math.isfinite(value) else -1.0


def confusion_matrix(record: RoundRecord, classes: Sequence[str], path: Path) -> None:
    """Plot which classes are predicted for the images of each class, as shares of the row.

    With more than ``MAX_CLASSES`` classes only those with the lowest recall are shown.
    """
    counts = np.array(record.confusion, float)
    totals = counts.sum(axis=1)
    shares = np.divide(counts, totals[:, None], out=np.zeros_like(counts), where=totals[:, None] > 0)
    order = np.arange(len(classes))
    if len(classes) > MAX_CLASSES:
        recall = np.where(totals > 0, shares.diagonal(), np.inf)
        order = np.sort(np.argsort(recall, kind="stable")[:MAX_CLASSES])
    shares, shown = shares[np.ix_(order, order)], len(order)
    names = [one_line(classes[index], 16) for index in order.tolist()]
    side = min(2.5 + 0.34 * shown, 9.0)
    with new_figure(path, side, max(side, 5.0)) as figure:
        axes = figure.subplots()
        matrix_image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        if shown <= MAX_NUMBERS:
            for row, column in zip(*np.nonzero(shares >= 0.005), strict=True):
                share = shares[row, column]
                colour = "white" if share > 0.55 else INK
                axes.text(column, row, f"{share:.2f}"[1:] if share < 0.995 else "1", ha="center", va="center",
                          color=colour, fontsize=7)  # fmt: skip
        axes.set_xticks(range(shown), names, rotation=90, fontsize=7 if shown > MAX_NUMBERS else 8)
        axes.set_yticks(range(shown), names, fontsize=7 if shown > MAX_NUMBERS else 8)
        part = f", the {shown} classes of lowest recall" if shown < len(classes) else ""
        axes.set(title=f"Confusion after round {record.round}{part}", xlabel="predicted class", ylabel="class")
        axes.grid(visible=False)
        figure.colorbar(matrix_image, ax=axes, shrink=0.7, label="share of the class's images")
