"""Chance levels: the metrics of a predictor that ignores the image and knows only the labels' prevalences.

As scikit-learn's ``DummyClassifier``: for AP and loss, the scores of every image are the labels' prevalences in the
training images (strategy ``prior``); for F1, the same labels are predicted for every image: the k most frequent ones,
with the k that is best on the training images. A metric near its chance level is no evidence that the model uses the
images.
"""

from collections.abc import Callable

import numpy as np

from tasks.core.evaluation_settings import EvaluationSettings

CHANCE = "chance/"  # prefix of a metric's chance level among a round's metrics
LOWER_IS_BETTER = ("loss",)


def chance_levels(train: np.ndarray, test: np.ndarray, settings: EvaluationSettings) -> dict[str, float]:
    """Compute the chance level of each global metric.

    Args:
        train: Targets 0/1 of the training images [M, C], M at least 1.
        test: Targets 0/1 of the test images [N, C], N at least 1.
        settings: The treatment of classes without positives.

    Returns:
        ``macro_ap``, ``micro_ap``, ``cf1``, ``mean_f1``, ``micro_f1``, ``loss`` and ``accuracy`` if every test
        image has exactly one label.
        NaN where a level is undefined: without any positive.
    """
    known, shares = train.mean(axis=0, dtype=np.float64), test.mean(axis=0, dtype=np.float64)
    order = np.argsort(-known, kind="stable")
    smooth = (train.sum(axis=0, dtype=np.float64) + 1) / (len(train) + 2)  # never 0 or 1, so that the loss is finite
    levels = {
        "macro_ap": _macro_ap(shares, settings),
        "micro_ap": _micro_ap(known, shares),
        "loss": float(-(shares * np.log(smooth) + (1 - shares) * np.log(1 - smooth)).mean()),
    }
    for name, f1 in _F1.items():
        chosen = int(np.nanargmax(f1(known[order], settings))) if known.any() else 0
        levels[name] = float(f1(shares[order], settings)[chosen]) if shares.any() else float("nan")
    return levels | ({"accuracy": float(shares[order[0]])} if (test.sum(axis=1) == 1).all() else {})


def _macro_ap(shares: np.ndarray, settings: EvaluationSettings) -> float:
    """Average the prevalences: with equal scores for all images, a class's AP is its prevalence."""
    used = np.ones_like(shares, bool) if settings.zero_support == "zero" else shares > 0
    return float(shares[used].mean()) if used.any() else float("nan")


def _micro_ap(known: np.ndarray, shares: np.ndarray) -> float:
    """Compute AP over all (image, class) pairs, scored by the class's prevalence in training; ties are one step."""
    if not shares.any():
        return float("nan")
    values, step = np.unique(-known, return_inverse=True)
    hits = np.bincount(step, weights=shares, minlength=len(values))
    predictions = np.bincount(step, minlength=len(values))
    precision = np.cumsum(hits) / np.cumsum(predictions)
    return float((hits * precision).sum() / hits.sum())


def _cf1(shares: np.ndarray, settings: EvaluationSettings) -> np.ndarray:
    """Compute F1 of macro precision and macro recall if the first k classes are always predicted, [C], k from 1."""
    used = shares > 0 if settings.zero_support == "exclude" else np.ones_like(shares, bool)
    precision = np.cumsum(np.where(used, shares, 0)) / used.sum()
    recall = np.cumsum(shares > 0) / used.sum()
    return np.asarray(2 * precision * recall / np.maximum(precision + recall, 1e-300))


def _mean_f1(shares: np.ndarray, settings: EvaluationSettings) -> np.ndarray:
    """Average the classes' F1, which is 2p / (1 + p) for a class that is always predicted, [C]."""
    used = shares > 0 if settings.zero_support == "exclude" else np.ones_like(shares, bool)
    return np.asarray(np.cumsum(2 * shares / (1 + shares)) / used.sum())


def _micro_f1(shares: np.ndarray, settings: EvaluationSettings) -> np.ndarray:
    """Compute F1 over all (image, class) pairs, 2 hits / (predictions + positives), [C]."""
    del settings
    return np.asarray(2 * np.cumsum(shares) / (np.arange(1, len(shares) + 1) + shares.sum()))


_F1: dict[str, Callable[[np.ndarray, EvaluationSettings], np.ndarray]] = {
    "cf1": _cf1,
    "mean_f1": _mean_f1,
    "micro_f1": _micro_f1,
}
