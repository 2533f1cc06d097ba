"""The metrics of each kind of problem as one object, and what is made of them: rows of classes and sites, intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.core.evaluation_settings import DEFAULTS, EvaluationSettings
from tasks.core.problem_kind import Kind
from tasks.evaluation import bootstrap, chance, metrics, single_label

Thresholds = float | np.ndarray  # one number, or one per class [C]


@dataclass(frozen=True)
class MetricSet:
    """The metrics of a kind of problem.

    Attributes:
        compute: (scores [N, C], targets [N, C], settings, thresholds) -> name -> number.
        per_class: (scores, targets, thresholds) -> name -> array [C].
        chance_levels: (training targets, test targets, settings) -> name -> level.
        resampled: (scores, targets, counts [B, N], settings, thresholds) -> name -> array [B].
        max_cells: Images x classes; beyond it, an interval takes seconds to compute and is narrow.
        client: The metrics of a client's row.
        site: Those of a site's row: meaningful on few images.
        distribution: Those whose distribution over the clients is recorded.
        confusion: (scores, targets) -> images by class and predicted class [C, C]; empty without single labels.
    """

    compute: Callable[..., dict[str, float]]
    per_class: Callable[[np.ndarray, np.ndarray, Thresholds], dict[str, np.ndarray]]
    chance_levels: Callable[[np.ndarray, np.ndarray, EvaluationSettings], dict[str, float]]
    resampled: Callable[[np.ndarray, np.ndarray, np.ndarray, EvaluationSettings, Thresholds], dict[str, np.ndarray]]
    max_cells: int
    client: tuple[str, ...]
    site: tuple[str, ...]
    distribution: tuple[str, ...]
    confusion: Callable[[np.ndarray, np.ndarray], list[list[int]]]


_SETS: dict[Kind, MetricSet] = {
    "multi_label": MetricSet(
        metrics.multilabel_metrics,
        metrics.per_class_table,
        chance.chance_levels,
        bootstrap.resampled_metrics,
        max_cells=100_000,
        client=("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1", "loss", "images", "classes_used"),
        site=("macro_ap", "micro_ap", "cf1", "images", "classes_used"),
        distribution=("macro_ap", "micro_f1", "loss"),
        confusion=lambda scores, targets: [],
    ),
    "single_label": MetricSet(
        single_label.single_label_metrics,
        single_label.per_class_table,
        single_label.chance_levels,
        single_label.resampled_metrics,
        max_cells=1_000_000,
        client=("accuracy", "balanced_accuracy", "macro_f1", "loss", "images", "classes_used"),
        site=("accuracy", "balanced_accuracy", "macro_f1", "images", "classes_used"),
        distribution=("accuracy", "macro_f1", "loss"),
        confusion=single_label.confusion_counts,
    ),
}


def metric_set(kind: Kind) -> MetricSet:
    """Return the metrics of a kind of problem."""
    return _SETS[kind]


def class_rows(
    metrics: MetricSet,
    classes: Sequence[str],
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings = DEFAULTS,
    thresholds: Thresholds | None = None,
) -> dict[str, dict[str, float]]:
    """Return the per-class table as plain numbers: class -> name -> number."""
    table = metrics.per_class(scores, targets, settings.threshold if thresholds is None else thresholds)
    return {name: {key: float(values[c]) for key, values in table.items()} for c, name in enumerate(classes)}


def intervals(
    metrics: MetricSet,
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings,
    rng: np.random.Generator,
    thresholds: Thresholds | None = None,
) -> dict[str, float]:
    """Compute the central 95 % of the main metrics over resampled test images.

    The interval is for another test set, not for another training run: two seeds may differ by more.

    Args:
        metrics: The metrics.
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        settings: Threshold, and the treatment of classes without positives.
        rng: Samples the images.
        thresholds: One number or one per class [C]; default: that of the settings.

    Returns:
        ``<metric>/low`` and ``<metric>/high``; empty for fewer than two images, for NaN scores, or beyond
        ``max_cells``.
    """
    if len(scores) < 2 or scores.size > metrics.max_cells or np.isnan(scores).any():
        return {}
    at = settings.threshold if thresholds is None else thresholds
    return bootstrap.resampled_intervals(
        len(scores), rng, lambda counts: metrics.resampled(scores, targets, counts, settings, at)
    )


def site_rows(
    metrics: MetricSet,
    sites: np.ndarray,
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings = DEFAULTS,
    thresholds: Thresholds | None = None,
) -> dict[str, dict[str, float]]:
    """Compute the metrics of each site, sites sorted; ``sites`` [N] names each image's."""
    rows = {}
    for site in sorted(set(sites.tolist())):
        at_site = sites == site
        found = metrics.compute(scores[at_site], targets[at_site], settings, thresholds)
        rows[site] = {key: found[key] for key in metrics.site}
    return rows
