"""Test images with their labels and the predicted ones, as a PNG file."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tasks.plotting.style import GREY, new_figure, one_line

CORRECT, WRONG, MISSED = "#00795A", "#C24E00", "#7B3294"  # dark enough for small text


def prediction_sheet(
    images: np.ndarray,
    truths: np.ndarray,
    scores: np.ndarray,
    classes: Sequence[str],
    path: Path,
    predicted: np.ndarray,
    rule: str,
) -> None:
    """Plot test images with their labels: correct, wrong and missed ones, each with its score.

    Args:
        images: uint8 [n,3,S,S].
        truths: [n,C], non-zero where the label is present.
        scores: [n,C] in [0,1].
        classes: The C labels.
        path: The PNG file.
        predicted: bool [n,C], the predicted labels.
        rule: When a label is predicted, in a few words.
    """
    columns = 3
    rows = math.ceil(len(images) / columns)
    with new_figure(path, 0.45 + 1.5 * rows) as figure:
        grid = figure.subplots(rows, 2 * columns, squeeze=False, width_ratios=[1, 1.05] * columns)
        for axes in grid.flat:
            axes.axis("off")
        for index, (image, truth, score, found) in enumerate(zip(images, truths, scores, predicted, strict=True)):
            plot, text_axes = grid[index // columns][2 * (index % columns) :][:2]
            plot.imshow(image.transpose(1, 2, 0))
            plot.set_anchor("N")
            for line, (text, colour) in enumerate(prediction_lines(truth, score, classes, found)):
                text_axes.text(
                    -0.12, 1.0 - 0.14 * line, text, color=colour, va="top", fontsize=8, transform=text_axes.transAxes
                )
        for number, (text, colour) in enumerate(
            ((f"✓ correct ({rule})", CORRECT), ("✗ wrong", WRONG), ("○ missed", MISSED))
        ):
            figure.text(0.02 + 0.26 * number, 0.995, text, color=colour, va="top", fontsize=10)
        figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - 0.3 / figure.get_figheight()))


def prediction_lines(
    truth: np.ndarray, score: np.ndarray, classes: Sequence[str], found: np.ndarray, most: int = 7
) -> list[tuple[str, str]]:
    """Return a line and its colour for every label that is present or predicted, highest score first."""
    lines = []
    for index in np.argsort(-score, kind="stable"):
        present, predicted = bool(truth[index]), bool(found[index])
        if present or predicted:
            hit = ("✓", CORRECT) if present else ("✗", WRONG)
            symbol, colour = hit if predicted else ("○", MISSED)
            lines.append((f"{symbol} {score[index]:.2f} {one_line(classes[index], 17)}", colour))
    if not lines:
        return [("no label, none predicted", GREY)]
    hidden = len(lines) - most
    return lines if hidden <= 0 else [*lines[: most - 1], (f"and {hidden + 1} more", GREY)]
