"""Metrics of multi-label classification as functions of scores and targets (specification section 5).

Each is computed once from all scores of a set of images; averages over batches or clients of an AP are not an AP.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.core.evaluation_settings import DEFAULTS, EvaluationSettings
from tasks.core.former_names import PERSONAL
from tasks.core.summary_statistics import distribution

SPREAD = ("macro_ap", "micro_f1", "loss")  # whose distribution over the clients is a metric of the round
OF_ALL = PERSONAL


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The sigmoid in float64, of any shape."""
    with np.errstate(over="ignore"):  # exp of a large number is infinite, and the quotient 0
        return np.asarray(1.0 / (1.0 + np.exp(-logits.astype(np.float64))))


def _ratio(part: np.ndarray | float, whole: np.ndarray | float) -> Any:
    """The quotient of part and whole, with 0/0 = 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def average_precision(scores: np.ndarray, targets: np.ndarray) -> float:
    """Step-wise average precision, sum of (R_n - R_(n-1)) P_n over the distinct scores, without interpolation.

    Args:
        scores: [n], higher is more likely. Equal ones are one step.
        targets: 0/1 [n].

    Returns:
        NaN without a positive, or where a score is NaN, as there is no ranking then.
    """
    from sklearn.metrics import average_precision_score

    if not np.any(targets) or np.isnan(scores).any():  # scikit-learn warns and says 0, or raises
        return float("nan")
    return float(average_precision_score(targets, scores))


def per_class_table(scores: np.ndarray, targets: np.ndarray, threshold: float = 0.5) -> dict[str, np.ndarray]:
    """AP, precision, recall, F1, support and prevalence of every class.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        threshold: A score at or above it is a prediction.

    Returns:
        Name -> array [C]; ``ap`` is NaN for a class without positives.
    """
    predicted, true = scores >= threshold, targets.astype(bool)
    hits = (predicted & true).sum(axis=0)
    precision, recall = _ratio(hits, predicted.sum(axis=0)), _ratio(hits, true.sum(axis=0))
    return {
        "ap": np.array([average_precision(scores[:, c], true[:, c]) for c in range(targets.shape[1])]),
        "precision": precision,
        "recall": recall,
        "f1": _ratio(2 * precision * recall, precision + recall),
        "support": true.sum(axis=0).astype(float),
        "prevalence": true.mean(axis=0) if len(true) else np.full(targets.shape[1], np.nan),
    }


def multilabel_metrics(
    scores: np.ndarray, targets: np.ndarray, settings: EvaluationSettings = DEFAULTS
) -> dict[str, float]:
    """The global metrics of section 5.

    ``cf1`` is the F1 of macro precision and macro recall, ``mean_f1`` the mean of the classes' F1. Where every image
    has exactly one label, ``accuracy`` is the share of images whose highest score is that label's.
    ``classes_without_positives`` are left out of every macro mean, or with ``zero_support: zero`` enter it as 0,
    AP included; with ``zero_f1`` they are left out of macro-AP and its chance level, and enter macro precision, recall
    and F1 as 0. ``classes_used`` says how many are in macro-AP.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        settings: The threshold, and what becomes of classes without positives.

    Returns:
        Name -> number; NaN where nothing can be said.
    """
    table = per_class_table(scores, targets, settings.threshold)
    there = table["support"] > 0
    every = np.full_like(there, len(targets) > 0)
    used = every if settings.zero_support == "zero" else there  # in macro-AP
    counted = there if settings.zero_support == "exclude" else every  # in macro precision, recall and F1
    table["ap"] = np.where(there, table["ap"], 0.0)
    predicted, true = scores >= settings.threshold, targets.astype(bool)
    hits, said, positives = float((predicted & true).sum()), float(predicted.sum()), float(true.sum())
    micro_p, micro_r = float(_ratio(hits, said)), float(_ratio(hits, positives))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no class is NaN, and that is what we mean
        macro = {name: float(np.mean(table[name][used])) for name in ("ap", "prevalence")}
        macro |= {name: float(np.mean(table[name][counted])) for name in ("precision", "recall", "f1")}
    harmonic = float(_ratio(2 * macro["precision"] * macro["recall"], macro["precision"] + macro["recall"]))
    single = len(targets) > 0 and bool((true.sum(axis=1) == 1).all())
    accuracy = {"accuracy": float((scores.argmax(axis=1) == true.argmax(axis=1)).mean())} if single else {}
    return accuracy | {
        "macro_ap": macro["ap"],
        "micro_ap": average_precision(scores.ravel(), true.ravel()),
        "macro_precision": macro["precision"],
        "macro_recall": macro["recall"],
        "cf1": harmonic if counted.any() else float("nan"),
        "mean_f1": macro["f1"],
        "micro_precision": micro_p,
        "micro_recall": micro_r,
        "micro_f1": float(_ratio(2 * micro_p * micro_r, micro_p + micro_r)),
        "mean_prevalence": macro["prevalence"],
        "classes_used": float(used.sum()),
        "classes_without_positives": float((~there).sum()),
        "images": float(len(targets)),
    }


def class_rows(
    classes: Sequence[str], scores: np.ndarray, targets: np.ndarray, settings: EvaluationSettings = DEFAULTS
) -> dict[str, dict[str, float]]:
    """The per-class table as plain numbers, class -> {ap, precision, recall, f1, support, prevalence}."""
    table = per_class_table(scores, targets, settings.threshold)
    return {name: {key: float(values[c]) for key, values in table.items()} for c, name in enumerate(classes)}


def site_rows(
    sites: np.ndarray, scores: np.ndarray, targets: np.ndarray, settings: EvaluationSettings = DEFAULTS
) -> dict[str, dict[str, float]]:
    """Per site the metrics that still mean something on few images."""
    keep = ("macro_ap", "micro_ap", "cf1", "images", "classes_used")
    rows = {}
    for site in sorted(set(sites.tolist())):
        here = sites == site
        metrics = multilabel_metrics(scores[here], targets[here], settings)
        rows[site] = {key: metrics[key] for key in keep}
    return rows


def client_distribution(per_client: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """How the clients' macro-AP, micro-F1 and loss are spread: ``client/<metric>/mean``, ``std``, ``worst_decile`` etc.

    ``worst_decile`` is the mean of the worst tenth of the clients, the lowest of AP and F1 and the highest of the loss;
    ``count`` the number of clients that have a value (a client without positives has no AP).
    """
    out: dict[str, float] = {}
    for metric in (prefix + name for prefix in ("", OF_ALL) for name in SPREAD):
        values = [row[metric] for row in per_client.values() if metric in row]
        if values:
            found = distribution(values, low_is_worst=not metric.endswith("loss"))
            out |= {f"client/{metric}/{key}": value for key, value in found.items()}
    return out


def weighted_mean(rows: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """The rows' mean, key by key, with weights that need not sum to 1."""
    return {key: float(np.average([row[key] for row in rows], weights=weights)) for key in rows[0]}
