"""Metrics of multi-label classification as functions of scores and targets (docs/evaluation.md).

Each is computed once from all scores of a set of images; averages over batches or clients of an AP are not an AP.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.core.evaluation_settings import DEFAULTS, EvaluationSettings


def combine(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Combine mappings whose names must differ: no metric may silently replace another one."""
    out: dict[str, Any] = {}
    for part in parts:
        clash = out.keys() & part.keys()
        assert not clash, f"metrics with the same name: {sorted(clash)}"
        out |= part
    return out


def average_precision(scores: np.ndarray, targets: np.ndarray) -> float:
    """Compute step-wise average precision, sum of (R_n - R_(n-1)) P_n over the distinct scores, not interpolated.

    Args:
        scores: [n], higher is more likely. Equal ones are one step.
        targets: 0/1 [n].

    Returns:
        NaN without a positive, or if a score is NaN, as there is no ranking then.
    """
    from sklearn.metrics import average_precision_score

    if not np.any(targets) or np.isnan(scores).any():  # scikit-learn warns and returns 0, or raises
        return float("nan")
    return float(average_precision_score(targets, scores))


def per_class_table(
    scores: np.ndarray, targets: np.ndarray, threshold: float | np.ndarray = 0.5
) -> dict[str, np.ndarray]:
    """Compute AP, precision, recall, F1, support and prevalence of every class.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        threshold: A score at or above it is a prediction; one number or one per class [C].

    Returns:
        Name -> array [C]; ``ap`` is NaN for a class without positives.
    """
    predicted, true = scores >= threshold, targets.astype(bool)
    precision, recall = _precision_recall(predicted, true, None)
    return {
        "ap": np.array([average_precision(scores[:, c], true[:, c]) for c in range(targets.shape[1])]),
        "precision": precision,
        "recall": recall,
        "f1": _harmonic_mean(precision, recall),
        "support": true.sum(axis=0).astype(float),
        "prevalence": true.mean(axis=0) if len(true) else np.full(targets.shape[1], np.nan),
    }


def multilabel_metrics(
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings = DEFAULTS,
    thresholds: float | np.ndarray | None = None,
) -> dict[str, float]:
    """Compute the global metrics.

    ``cf1`` is the F1 of macro precision and macro recall, ``mean_f1`` the mean of the classes' F1. If every image has
    exactly one label, ``accuracy`` is the share of images whose highest score is that label's.
    Classes without positives are excluded from every macro mean; with ``zero_support: zero`` they count as 0 in all
    of them; with ``zero_f1`` they are excluded from macro-AP and its chance level, and count as 0 in macro precision,
    recall and F1. ``classes_used`` is the number of classes in macro-AP, ``classes_without_positives`` that of
    classes without positives.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        settings: The threshold, and the treatment of classes without positives.
        thresholds: One number or one per class [C]; default: that of the settings.

    Returns:
        Name -> number; NaN where a metric is undefined.
    """
    threshold = settings.threshold if thresholds is None else thresholds
    table, true = per_class_table(scores, targets, threshold), targets.astype(bool)
    macro = _macro_means(table, len(targets), settings)
    micro_p, micro_r = _precision_recall(scores >= threshold, true, "micro")
    single = len(targets) > 0 and bool((true.sum(axis=1) == 1).all())
    accuracy = {"accuracy": float((scores.argmax(axis=1) == true.argmax(axis=1)).mean())} if single else {}
    return accuracy | {
        "macro_ap": macro["ap"],
        "micro_ap": average_precision(scores.ravel(), true.ravel()),
        "macro_precision": macro["precision"],
        "macro_recall": macro["recall"],
        "cf1": float(_harmonic_mean(macro["precision"], macro["recall"])),
        "mean_f1": macro["f1"],
        "micro_precision": float(micro_p),
        "micro_recall": float(micro_r),
        "micro_f1": float(_harmonic_mean(micro_p, micro_r)),
        "mean_prevalence": macro["prevalence"],
        "classes_used": macro["classes"],
        "classes_without_positives": float((table["support"] == 0).sum()),
        "images": float(len(targets)),
    }


def _macro_means(table: Mapping[str, np.ndarray], images: int, settings: EvaluationSettings) -> dict[str, float]:
    """Average the columns of the per-class table over the classes that count; NaN without any.

    Returns:
        ``ap`` and ``prevalence``, over ``classes`` classes; ``precision``, ``recall`` and ``f1``.
    """
    supported = table["support"] > 0
    every = np.full_like(supported, images > 0)
    in_ap = every if settings.zero_support == "zero" else supported
    in_f1 = supported if settings.zero_support == "exclude" else every  # also in macro precision and recall
    used = {"ap": in_ap, "prevalence": in_ap, "precision": in_f1, "recall": in_f1, "f1": in_f1}
    columns = {**table, "ap": np.where(supported, table["ap"], 0.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no class is NaN, as intended
        means = {name: float(np.mean(columns[name][classes])) for name, classes in used.items()}
    return means | {"classes": float(in_ap.sum())}


def _precision_recall(predicted: np.ndarray, true: np.ndarray, average: str | None) -> tuple[Any, Any]:
    """Compute precision and recall of bool [N, C] with scikit-learn, 0/0 = 0; [C] each, or one number for ``micro``."""
    from sklearn.metrics import precision_recall_fscore_support

    count, classes = true.shape
    if not count:  # refused by scikit-learn
        zero = np.zeros(classes) if average is None else 0.0
        return zero, zero
    labels = None
    if classes == 1:  # binary for scikit-learn; only the positive class counts
        predicted, true, labels = predicted.ravel(), true.ravel(), [True]
    found = precision_recall_fscore_support(true, predicted, labels=labels, average=average, zero_division=0)
    return found[0], found[1]


def _harmonic_mean(a: Any, b: Any) -> np.ndarray:
    """Compute 2ab / (a + b) with 0/0 = 0: F1 of precision and recall; NaN where one of them is."""
    product, total = np.asarray(2 * a * b, float), np.asarray(a + b, float)
    return np.divide(product, total, out=np.zeros_like(product), where=total != 0)
