"""Metrics of single-label classification: one class per image, predicted by the highest probability.

Each is computed once from all scores of a set of images.
"""

import numpy as np

from tasks.core.evaluation_settings import DEFAULTS, EvaluationSettings
from tasks.evaluation.bootstrap import ratio

TOP = 5
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
            found["top5_accuracy"] = float(in_top(scores, true).mean())
    return found | {
        "classes_used": float(used.sum()),
        "classes_without_positives": float((~supported).sum()),
        "images": float(count),
    }


def per_class_table(
    scores: np.ndarray, targets: np.ndarray, thresholds: float | np.ndarray = 0.5
) -> dict[str, np.ndarray]:
    """Compute precision, recall, F1, support and prevalence of every class, 0/0 = 0; name -> array [C].

    ``thresholds`` are not used: the class of the highest score is predicted.
    """
    del thresholds
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


def resampled_metrics(
    scores: np.ndarray,
    targets: np.ndarray,
    counts: np.ndarray,
    settings: EvaluationSettings,
    thresholds: float | np.ndarray,
) -> dict[str, np.ndarray]:
    """Compute the metrics of one label that have an interval; arguments as of ``bootstrap.resampled_metrics``.

    Returns:
        Accuracy, top-5 accuracy, balanced accuracy and macro F1 of the B resamples, [B] each.
    """
    del thresholds
    images, classes = targets.shape
    true, predicted = targets.astype(bool), np.zeros(targets.shape, bool)
    predicted[np.arange(images), scores.argmax(axis=1)] = True
    hits, predictions, positives = counts @ (predicted & true), counts @ predicted, counts @ true  # [B, C]
    supported = positives > 0
    used = supported if settings.zero_support == "exclude" else np.ones_like(supported)
    recall, f1 = ratio(hits, positives), ratio(2 * hits, predictions + positives)
    found = {
        "accuracy": hits.sum(axis=1) / images,
        "balanced_accuracy": (recall * supported).sum(axis=1) / supported.sum(axis=1),
        "macro_f1": (f1 * used).sum(axis=1) / used.sum(axis=1),
    }
    return found | ({"top5_accuracy": counts @ in_top(scores, true.argmax(axis=1)) / images} if classes > TOP else {})


def in_top(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return whether each image's class has one of its five highest scores, bool [N]; the first of equals is higher."""
    highest = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    return np.asarray((highest == labels[:, None]).any(axis=1))
