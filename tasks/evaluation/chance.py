"""Chance levels: what a predictor reaches that never looks at the image and knows the labels' shares alone.

As scikit-learn's ``DummyClassifier``: for AP and loss it gives every image the labels' shares in the training images
(``prior``), for F1 it says a fixed set of labels for every image: the most frequent ones, as many as are best on the
training images ("always yes" is one of these sets). So a score near its level says nothing about the images.
"""

from collections.abc import Callable

import numpy as np

from tasks.core.evaluation_settings import EvaluationSettings

CHANCE = "chance/"  # begins the name of a metric's chance level among a round's metrics
LOWER_IS_BETTER = ("loss",)


def chance_levels(
    train: np.ndarray, test: np.ndarray, settings: EvaluationSettings, single: bool = False
) -> dict[str, float]:
    """The chance level of each global metric.

    Args:
        train: Targets 0/1 of the training images [M, C], M at least 1.
        test: Targets 0/1 of the images that are scored [N, C], N at least 1.
        settings: What becomes of classes without positives.
        single: Whether every scored image has exactly one label; adds ``accuracy``.

    Returns:
        ``macro_ap``, ``micro_ap``, ``cf1``, ``mean_f1``, ``micro_f1``, ``loss`` and, for single labels, ``accuracy``.
        NaN where nothing can be said: without any positive.
    """
    known, shares = train.mean(axis=0, dtype=np.float64), test.mean(axis=0, dtype=np.float64)
    order = np.argsort(-known, kind="stable")
    smooth = (train.sum(axis=0, dtype=np.float64) + 1) / (len(train) + 2)  # never 0 or 1, so that the loss is finite
    levels = {
        "macro_ap": _macro_ap(shares, settings),
        "micro_ap": _micro_ap(known, shares),
        "loss": float(-(shares * np.log(smooth) + (1 - shares) * np.log(1 - smooth)).mean()),
    }
    for name, score in _F1.items():
        chosen = int(np.nanargmax(score(known[order], settings))) if known.any() else 0
        levels[name] = float(score(shares[order], settings)[chosen]) if shares.any() else float("nan")
    return levels | ({"accuracy": float(shares[order[0]])} if single else {})


def _macro_ap(shares: np.ndarray, settings: EvaluationSettings) -> float:
    """Equal scores for all images are one step, so that a class's AP is its share of the images."""
    used = np.ones_like(shares, bool) if settings.zero_support == "zero" else shares > 0
    return float(shares[used].mean()) if used.any() else float("nan")


def _micro_ap(known: np.ndarray, shares: np.ndarray) -> float:
    """AP over all (image, class) pairs, each scored by its class's share in training; equal scores are one step."""
    if not shares.any():
        return float("nan")
    values, step = np.unique(-known, return_inverse=True)
    hits = np.bincount(step, weights=shares, minlength=len(values))
    said = np.bincount(step, minlength=len(values))
    precision = np.cumsum(hits) / np.cumsum(said)
    return float((hits * precision).sum() / hits.sum())


def _cf1(shares: np.ndarray, settings: EvaluationSettings) -> np.ndarray:
    """F1 of macro precision and macro recall when the first k classes are always said, [C], k from 1."""
    used = shares > 0 if settings.zero_support == "exclude" else np.ones_like(shares, bool)
    precision = np.cumsum(np.where(used, shares, 0)) / used.sum()
    recall = np.cumsum(shares > 0) / used.sum()
    return np.asarray(2 * precision * recall / np.maximum(precision + recall, 1e-300))


def _mean_f1(shares: np.ndarray, settings: EvaluationSettings) -> np.ndarray:
    """Mean of the classes' F1, 2p / (1 + p) for a class that is always said, [C]."""
    used = shares > 0 if settings.zero_support == "exclude" else np.ones_like(shares, bool)
    return np.asarray(np.cumsum(2 * shares / (1 + shares)) / used.sum())


def _micro_f1(shares: np.ndarray, settings: EvaluationSettings) -> np.ndarray:
    """F1 over all (image, class) pairs, 2 hits / (said + positives), [C]."""
    del settings
    return np.asarray(2 * np.cumsum(shares) / (np.arange(1, len(shares) + 1) + shares.sum()))


_F1: dict[str, Callable[[np.ndarray, EvaluationSettings], np.ndarray]] = {
    "cf1": _cf1,
    "mean_f1": _mean_f1,
    "micro_f1": _micro_f1,
}
