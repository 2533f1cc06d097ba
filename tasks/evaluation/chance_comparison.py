"""Test metrics compared with their chance levels and intervals, with warnings where they are not above chance."""

import math
from collections.abc import Mapping

from tasks.core.metric_titles import TITLES
from tasks.evaluation.bootstrap import INTERVAL
from tasks.evaluation.chance import CHANCE, LOWER_IS_BETTER

MIN_IMAGES = 50  # with fewer, a single image changes a metric by two points or more
NEAR = 0.02  # a metric this close to its chance level counts as near it if there is no interval
HEADS = ("metric", "value", "95 % interval", "chance level", "")


def comparison_rows(metrics: Mapping[str, float]) -> list[list[str]]:
    """Return a row of text per metric with a chance level: title, value, interval, chance level, remark."""
    return [
        [
            title,
            _shown(metrics[name]),
            _interval(metrics, name),
            _shown(metrics[CHANCE + name]),
            _REMARKS[_compare(metrics, name)],
        ]
        for name, title in TITLES.items()
        if name in metrics and CHANCE + name in metrics
    ]


def warnings(metrics: Mapping[str, float]) -> list[str]:
    """Warn of metrics that are not above chance, and of test and validation sets that are too small."""
    lines = []
    for name, title in TITLES.items():
        if name == "loss" or name not in metrics or CHANCE + name not in metrics:
            continue
        relation = _compare(metrics, name)
        if relation in ("below", "near"):
            verb = "is below" if relation == "below" else "is no clear gain over"
            lines.append(
                f"{title} {_shown(metrics[name])} {verb} {_shown(metrics[CHANCE + name])}, "
                "which a predictor that ignores the images reaches"
            )
    sizes = (("images", "test", "metrics of single rounds"), ("val_images", "validation", "rounds"))
    for key, title, what in sizes:
        if key in metrics and metrics[key] < MIN_IMAGES:
            lines.append(f"{metrics[key]:.0f} {title} images are too few to tell {what} apart")
    return lines


_REMARKS = {"above": "", "near": "near chance", "below": "worse than chance", "unknown": ""}


def _compare(metrics: Mapping[str, float], name: str) -> str:
    """Compare a metric with its chance level: ``above``, ``near`` (within the interval, or ``NEAR``) or ``below``."""
    value, chance = metrics[name], metrics[CHANCE + name]
    if not (math.isfinite(value) and math.isfinite(chance)):
        return "unknown"
    if name in LOWER_IS_BETTER:
        value, chance = -value, -chance
    if value < chance:
        return "below"
    low = metrics.get(f"{INTERVAL}{name}/low")
    return "near" if chance >= (value - NEAR if low is None else low) else "above"


def _interval(metrics: Mapping[str, float], name: str) -> str:
    bounds = [metrics.get(f"{INTERVAL}{name}/{end}") for end in ("low", "high")]
    return "-" if None in bounds else f"{_shown(bounds[0])} to {_shown(bounds[1])}"


def _shown(value: float | None) -> str:
    return f"{value:.3f}" if value is not None and math.isfinite(value) else "-"
