"""Intervals of test metrics by resampling the images (percentile bootstrap; Efron and Tibshirani 1993, chapter 13)."""

from collections.abc import Callable, Mapping

import numpy as np

from tasks.core.evaluation_settings import EvaluationSettings

INTERVAL = "interval/"  # prefix of a metric's bounds: interval/<metric>/low and /high
RESAMPLES = 200
LEVEL = 0.95


def resampled_intervals(
    n: int, rng: np.random.Generator, metrics: Callable[[np.ndarray], Mapping[str, np.ndarray]]
) -> dict[str, float]:
    """Bound metrics by the central 95 % of their values over ``RESAMPLES`` resamples of n images.

    Args:
        n: Number of images.
        rng: Samples the images.
        metrics: How often each image occurs in each resample [B, n] -> the metrics of the resamples [B].

    Returns:
        ``<metric>/low`` and ``<metric>/high``, over the resamples in which the metric is defined.
    """
    counts = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)
    bounds: dict[str, float] = {}
    for name, values in metrics(counts).items():
        finite = values[np.isfinite(values)]
        if len(finite):
            low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            bounds |= {f"{name}/low": float(low), f"{name}/high": float(high)}
    return bounds


def resampled_metrics(
    scores: np.ndarray,
    targets: np.ndarray,
    counts: np.ndarray,
    settings: EvaluationSettings,
    thresholds: float | np.ndarray,
) -> dict[str, np.ndarray]:
    """Compute the metrics of several labels that have an interval, of B resamples of the images.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        counts: How often each image occurs in each resample [B, N].
        settings: The treatment of classes without positives.
        thresholds: One number or one per class [C].

    Returns:
        macro-AP, micro-AP and CF1, [B] each.
    """
    predicted, true, classes = scores >= thresholds, targets.astype(bool), targets.shape[1]
    ap = np.stack([weighted_ap(scores[:, c], true[:, c], counts) for c in range(classes)], axis=1)
    hits, predictions, positives = counts @ (predicted & true), counts @ predicted, counts @ true
    supported = positives > 0
    in_ap = supported if settings.zero_support != "zero" else np.ones_like(supported)
    in_f1 = supported if settings.zero_support == "exclude" else np.ones_like(supported)
    precision, recall = _mean(ratio(hits, predictions), in_f1), _mean(ratio(hits, positives), in_f1)
    image = np.repeat(np.arange(len(true)), classes)
    micro = [weighted_ap(scores.ravel(), true.ravel(), row[None, image])[0] for row in counts]
    return {
        "macro_ap": _mean(np.nan_to_num(ap), in_ap),
        "micro_ap": np.array(micro),
        "cf1": np.where(in_f1.any(axis=1), ratio(2 * precision * recall, precision + recall), np.nan),
    }


def weighted_ap(scores: np.ndarray, true: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute step-wise average precision for several weightings of the same scores.

    Args:
        scores: [n]; equal ones are one step.
        true: Bool [n].
        weights: [B, n], not negative.

    Returns:
        [B]; NaN where the positives have no weight.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    sorted_weights = weights[:, order]
    hits = np.cumsum(sorted_weights * true[order], axis=1)[:, ends]
    predictions = np.cumsum(sorted_weights, axis=1)[:, ends]
    gained = np.diff(hits, axis=1, prepend=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((gained * ratio(hits, predictions)).sum(axis=1) / hits[:, -1])


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide element by element, 0/0 = 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros_like(part, float), where=whole > 0))


def _mean(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Average each row over its used entries; NaN without any."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((values * used).sum(axis=1) / used.sum(axis=1))
