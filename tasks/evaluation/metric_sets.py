"""The metrics of each kind of problem as one object, and the rows of sites, which are made of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasks.core.evaluation_settings import DEFAULTS, EvaluationSettings
from tasks.core.problem_kind import Kind
from tasks.evaluation import bootstrap, chance, metrics, single_label


@dataclass(frozen=True)
class MetricSet:
    """The metrics of a kind of problem.

    Attributes:
        compute: (scores [N, C], targets [N, C], settings, thresholds) -> name -> number.
        class_rows: (classes, scores, targets, settings, thresholds) -> class -> its numbers.
        chance_levels: (training targets, test targets, settings) -> name -> level.
        intervals: (scores, targets, settings, generator, thresholds) -> ``<metric>/low`` and ``/high``.
        client: The metrics of a client's row.
        site: Those of a site's row: meaningful on few images.
        distribution: Those whose distribution over the clients is recorded.
        confusion: (scores, targets) -> images by class and predicted class [C, C]; empty without single labels.
    """

    compute: Callable[..., dict[str, float]]
    class_rows: Callable[..., dict[str, dict[str, float]]]
    chance_levels: Callable[[np.ndarray, np.ndarray, EvaluationSettings], dict[str, float]]
    intervals: Callable[..., dict[str, float]]
    client: tuple[str, ...]
    site: tuple[str, ...]
    distribution: tuple[str, ...]
    confusion: Callable[[np.ndarray, np.ndarray], list[list[int]]]


_SETS: dict[Kind, MetricSet] = {
    "multi_label": MetricSet(
        metrics.multilabel_metrics,
        metrics.class_rows,
        chance.chance_levels,
        bootstrap.intervals,
        client=("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1", "loss", "images", "classes_used"),
        site=("macro_ap", "micro_ap", "cf1", "images", "classes_used"),
        distribution=("macro_ap", "micro_f1", "loss"),
        confusion=lambda scores, targets: [],
    ),
    "single_label": MetricSet(
        single_label.single_label_metrics,
        single_label.class_rows,
        single_label.chance_levels,
        single_label.intervals,
        client=("accuracy", "balanced_accuracy", "macro_f1", "loss", "images", "classes_used"),
        site=("accuracy", "balanced_accuracy", "macro_f1", "images", "classes_used"),
        distribution=("accuracy", "macro_f1", "loss"),
        confusion=single_label.confusion_counts,
    ),
}


def metric_set(kind: Kind) -> MetricSet:
    """Return the metrics of a kind of problem."""
    return _SETS[kind]


def site_rows(
    metrics: MetricSet,
    sites: np.ndarray,
    scores: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings = DEFAULTS,
    thresholds: float | np.ndarray | None = None,
) -> dict[str, dict[str, float]]:
    """Compute the metrics of each site, sites sorted; ``sites`` [N] names each image's."""
    rows = {}
    for site in sorted(set(sites.tolist())):
        at_site = sites == site
        found = metrics.compute(scores[at_site], targets[at_site], settings, thresholds)
        rows[site] = {key: found[key] for key in metrics.site}
    return rows
