"""Metrics of single-label classification: one class per image, predicted by the highest probability.

Each is computed once from all scores of a set of images, with scikit-learn. Chance levels and intervals as for
multi-label data (``chance.py``, ``bootstrap.py``).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.core.evaluation_settings import DEFAULTS, EvaluationSettings
from tasks.evaluation.bootstrap import ratio, resample

TOP = 5
MAX_CELLS = 1_000_000  # images x classes; beyond it, an interval takes seconds to compute and is narrow
_COMPARED = ("accuracy", "top5_accuracy", "balanced_accuracy", "macro_f1")  # with a chance level and an interval
_RANKED = ("accuracy", "balanced_accuracy", "macro_precision", "macro_recall", "macro_f1")


def single_label_metrics(
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings = DEFAULTS,
    thresholds: float | np.ndarray | None = None,
) -> dict[str, float]:
    """Compute the global metrics.

    ``accuracy`` is the share of images whose class has the highest score, ``top5_accuracy`` that of images whose class
    is among the five highest (only with more than five classes), ``balanced_accuracy`` the mean recall of the classes
    that have images. ``macro_precision``, ``macro_recall`` and ``macro_f1`` are means over the classes that have
    images, or over all classes unless ``zero_support`` is ``exclude``.

    Args:
        scores: Probabilities [N, C].
        targets: One-hot 0/1 [N, C].
        settings: The treatment of classes without images.
        thresholds: Not used: the class of the highest score is predicted.

    Returns:
        Name -> number; NaN where a metric is undefined: without images, or if a score is NaN.
    """
    del thresholds
    from sklearn.metrics import top_k_accuracy_score

    classes, count = targets.shape[1], len(targets)
    table = per_class_table(scores, targets)
    supported = table["support"] > 0
    used = supported if settings.zero_support == "exclude" else np.full_like(supported, count > 0)
    names = (*_RANKED, "top5_accuracy") if classes > TOP else _RANKED
    if not count or np.isnan(scores).any():
        found = dict.fromkeys(names, float("nan"))
    else:
        true = targets.argmax(axis=1)
        found = {
            "accuracy": float((scores.argmax(axis=1) == true).mean()),
            "balanced_accuracy": float(table["recall"][supported].mean()),
            **{f"macro_{key}": float(table[key][used].mean()) for key in ("precision", "recall", "f1")},
        }
        if classes > TOP:
            found["top5_accuracy"] = float(top_k_accuracy_score(true, scores, k=TOP, labels=np.arange(classes)))
    return found | {
        "classes_used": float(used.sum()),
        "classes_without_positives": float((~supported).sum()),
        "images": float(count),
    }


def per_class_table(scores: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    """Compute precision, recall, F1, support and prevalence of every class, 0/0 = 0; name -> array [C]."""
    from sklearn.metrics import precision_recall_fscore_support

    classes, count = targets.shape[1], len(targets)
    if not count:  # refused by scikit-learn
        zero = np.zeros(classes)
        return {"precision": zero, "recall": zero, "f1": zero, "support": zero, "prevalence": np.full(classes, np.nan)}
    precision, recall, f1, support = precision_recall_fscore_support(
        targets.argmax(axis=1), scores.argmax(axis=1), labels=np.arange(classes), zero_division=0
    )
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "support": np.asarray(support, float),
        "prevalence": targets.mean(axis=0, dtype=np.float64),
    }


def class_rows(
    classes: Sequence[str],
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings = DEFAULTS,
    thresholds: float | np.ndarray | None = None,
) -> dict[str, dict[str, float]]:
    """Return the per-class table as plain numbers, class -> {precision, recall, f1, support, prevalence}."""
    del settings, thresholds
    table = per_class_table(scores, targets)
    return {name: {key: float(values[c]) for key, values in table.items()} for c, name in enumerate(classes)}


def confusion_counts(scores: np.ndarray, targets: np.ndarray) -> list[list[int]]:
    """Count the images by class (rows) and predicted class (columns), [C, C]."""
    from sklearn.metrics import confusion_matrix

    classes = targets.shape[1]
    if not len(targets):  # refused by scikit-learn
        return [[0] * classes for _ in range(classes)]
    counts = confusion_matrix(targets.argmax(axis=1), scores.argmax(axis=1), labels=np.arange(classes))
    return [[int(count) for count in row] for row in counts]


def chance_levels(train: np.ndarray, test: np.ndarray, settings: EvaluationSettings) -> dict[str, float]:
    """Compute the level of each metric that is reached without looking at the images.

    As scikit-learn's ``DummyClassifier`` with strategy ``prior``: the scores of every image are the classes' shares in
    the training images, so the class that is most frequent there is predicted for all.

    Args:
        train: One-hot targets of the training images [M, C], M at least 1.
        test: One-hot targets of the test images [N, C], N at least 1.
        settings: The treatment of classes without images.

    Returns:
        Levels of accuracy, top-5 accuracy, balanced accuracy and macro F1, and of ``loss``: the cross entropy of the
        shares, smoothed.
    """
    counts = train.sum(axis=0, dtype=np.float64)
    metrics = single_label_metrics(np.broadcast_to(counts / len(train), test.shape), test, settings)
    smooth = (counts + 1) / (len(train) + len(counts))  # never 0, so that the loss is finite
    loss = float(-(test.mean(axis=0, dtype=np.float64) * np.log(smooth)).sum())
    return {key: metrics[key] for key in _COMPARED if key in metrics} | {"loss": loss}


def intervals(
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings,
    rng: np.random.Generator,
    thresholds: float | np.ndarray | None = None,
) -> dict[str, float]:
    """Compute the central 95 % of accuracy, top-5 accuracy, balanced accuracy and macro F1 over resampled images.

    Args:
        scores: Probabilities [N, C].
        targets: One-hot 0/1 [N, C].
        settings: The treatment of classes without images.
        rng: Samples the images.
        thresholds: Not used.

    Returns:
        ``<metric>/low`` and ``<metric>/high``; empty for fewer than two images, for NaN scores, or beyond
        ``MAX_CELLS``.
    """
    del thresholds

    def resampled(counts: np.ndarray) -> dict[str, np.ndarray]:
        return _resampled(scores, targets.astype(bool), counts, settings)

    return resample(scores, rng, resampled, MAX_CELLS)


def _resampled(
    scores: np.ndarray, true: np.ndarray, counts: np.ndarray, settings: EvaluationSettings
) -> dict[str, np.ndarray]:
    """Compute the metrics of B resamples, [B] each; ``counts`` [B, N]: how often each image occurs."""
    images, classes = true.shape
    predicted = np.zeros_like(true)
    predicted[np.arange(images), scores.argmax(axis=1)] = True
    hits, predictions, positives = counts @ (predicted & true), counts @ predicted, counts @ true  # [B, C]
    supported = positives > 0
    used = supported if settings.zero_support == "exclude" else np.ones_like(supported)
    recall, f1 = ratio(hits, positives), ratio(2 * hits, predictions + positives)
    found: dict[str, Any] = {
        "accuracy": hits.sum(axis=1) / images,
        "balanced_accuracy": (recall * supported).sum(axis=1) / supported.sum(axis=1),
        "macro_f1": (f1 * used).sum(axis=1) / used.sum(axis=1),
    }
    if classes > TOP:
        of_class = (scores * true).sum(axis=1, keepdims=True)
        found["top5_accuracy"] = counts @ ((scores > of_class).sum(axis=1) < TOP) / images
    return found
