"""A threshold for each class, tuned on validation images (docs/evaluation.md)."""

from collections.abc import Mapping

import numpy as np

THRESHOLD = "threshold"  # in a class's row of a round's record


def tuned_thresholds(scores: np.ndarray, targets: np.ndarray, otherwise: float) -> np.ndarray:
    """Return the threshold of each class that has the highest F1 on these images.

    A threshold lies halfway between the lowest score that it accepts and the highest that it does not (0 if it accepts
    all), as nothing is known about scores in between. Of thresholds with equal F1 the one nearest to ``otherwise``
    counts. A class without a positive among these images keeps ``otherwise``.

    Args:
        scores: Probabilities of the validation images [N, C].
        targets: 0/1 [N, C].
        otherwise: Threshold of classes that cannot be tuned.

    Returns:
        float64 [C], above 0 and below 1.
    """
    columns = zip(scores.T.astype(np.float64), targets.T.astype(bool), strict=True)
    return np.array([best_threshold(column, true, otherwise) for column, true in columns])


def best_threshold(scores: np.ndarray, true: np.ndarray, otherwise: float) -> float:
    """Return the threshold of one class: scores [N], bool [N]; see ``tuned_thresholds``."""
    from sklearn.metrics import precision_recall_curve

    if not true.any() or np.isnan(scores).any():
        return otherwise
    precision, recall, accepted = precision_recall_curve(true, scores)  # accepted: distinct scores, ascending
    precision, recall = precision[:-1], recall[:-1]  # the last point accepts nothing
    f1 = np.divide(2 * precision * recall, precision + recall, out=np.zeros_like(recall), where=recall > 0)
    halfway = (accepted + np.concatenate([[0.0], accepted[:-1]])) / 2
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    chosen = halfway[best[np.abs(halfway[best] - otherwise).argmin()]]
    # A score of 0 or 1 exactly leaves no number between: the settings' bounds are those of a threshold.
    return float(np.clip(chosen, np.finfo(float).tiny, 1 - np.finfo(float).epsneg))


def thresholds_of(per_class: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return class -> threshold of a round's rows of classes; empty if one threshold holds for all."""
    return {name: row[THRESHOLD] for name, row in per_class.items() if THRESHOLD in row}


def class_thresholds(thresholds: Mapping[str, float]) -> np.ndarray:
    """Return the thresholds as an array [C], in the order of the classes."""
    return np.array(list(thresholds.values()))
