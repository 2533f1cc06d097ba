"""How metrics are called in tables, plots and the terminal, and which of them head a round."""

from collections.abc import Mapping

from tasks.core.problem import primary_metric

TITLES = {
    "macro_ap": "macro AP",
    "micro_ap": "micro AP",
    "cf1": "CF1",
    "mean_f1": "mean F1",
    "micro_f1": "micro F1",
    "accuracy": "accuracy",
    "top5_accuracy": "top-5 accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_precision": "macro precision",
    "macro_recall": "macro recall",
    "macro_f1": "macro F1",
    "loss": "loss",
}
# By the primary metric: what stands first in a round's line
_HEADLINES = {
    "macro_ap": (("macro-AP", "macro_ap"), ("micro-AP", "micro_ap"), ("loss", "loss")),
    "accuracy": (("accuracy", "accuracy"), ("balanced accuracy", "balanced_accuracy"), ("loss", "loss")),
}


def headline(metrics: Mapping[str, float]) -> str:
    """Return a round's main metrics in one line, "" without any ("accuracy 0.812, balanced accuracy 0.790, ...")."""
    shown = _HEADLINES[primary_metric(metrics)]
    return ", ".join(f"{title} {metrics[key]:.3f}" for title, key in shown if key in metrics)
