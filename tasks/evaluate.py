"""Metrics of the pooled test set, computed once from all scores (specification section 5).

Averages over batches or clients of an AP are not an AP; nothing here averages them.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tasks.context import RunContext
    from tasks.records import ModelRef


def _ratio(part: np.ndarray | float, whole: np.ndarray | float) -> Any:
    """The quotient of part and whole, with 0/0 = 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def per_class_table(scores: np.ndarray, targets: np.ndarray, threshold: float = 0.5) -> dict[str, np.ndarray]:
    """AP, precision, recall, F1, support and prevalence of every class.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        threshold: A score at or above it is a prediction.

    Returns:
        Name -> array [C]; ``ap`` is NaN for a class without positives.
    """
    from sklearn.metrics import average_precision_score

    predicted, true = scores >= threshold, targets.astype(bool)
    hits = (predicted & true).sum(axis=0)
    precision, recall = _ratio(hits, predicted.sum(axis=0)), _ratio(hits, true.sum(axis=0))
    ap = np.full(targets.shape[1], np.nan)
    for c in np.flatnonzero(true.any(axis=0)):
        ap[c] = average_precision_score(true[:, c], scores[:, c])
    return {
        "ap": ap,
        "precision": precision,
        "recall": recall,
        "f1": _ratio(2 * precision * recall, precision + recall),
        "support": true.sum(axis=0).astype(float),
        "prevalence": true.mean(axis=0) if len(true) else np.full(targets.shape[1], np.nan),
    }


def multilabel_metrics(scores: np.ndarray, targets: np.ndarray, threshold: float = 0.5) -> dict[str, float]:
    """The global metrics of section 5.

    Classes without positives are left out of every macro mean; ``classes_used`` says how many are in.
    ``cf1`` is the F1 of macro precision and macro recall, ``mean_f1`` the mean of the classes' F1. Where every image
    has exactly one label, ``accuracy`` is the share of images whose highest score is that label's.

    Args:
        scores: Probabilities [N, C].
        targets: 0/1 [N, C].
        threshold: A score at or above it is a prediction.

    Returns:
        Name -> number; NaN where nothing can be said.
    """
    from sklearn.metrics import average_precision_score

    table = per_class_table(scores, targets, threshold)
    used = table["support"] > 0
    predicted, true = scores >= threshold, targets.astype(bool)
    hits, said, there = float((predicted & true).sum()), float(predicted.sum()), float(true.sum())
    micro_p, micro_r = float(_ratio(hits, said)), float(_ratio(hits, there))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no class is NaN, and that is what we mean
        macro = {name: float(np.mean(table[name][used])) for name in ("ap", "precision", "recall", "f1", "prevalence")}
    harmonic = float(_ratio(2 * macro["precision"] * macro["recall"], macro["precision"] + macro["recall"]))
    single = len(targets) > 0 and bool((true.sum(axis=1) == 1).all())
    accuracy = {"accuracy": float((scores.argmax(axis=1) == true.argmax(axis=1)).mean())} if single else {}
    return accuracy | {
        "macro_ap": macro["ap"],
        "micro_ap": float(average_precision_score(true.ravel(), scores.ravel())) if there else float("nan"),
        "macro_precision": macro["precision"],
        "macro_recall": macro["recall"],
        "cf1": harmonic if used.any() else float("nan"),
        "mean_f1": macro["f1"],
        "micro_precision": micro_p,
        "micro_recall": micro_r,
        "micro_f1": float(_ratio(2 * micro_p * micro_r, micro_p + micro_r)),
        "mean_prevalence": macro["prevalence"],
        "classes_used": float(used.sum()),
        "images": float(len(targets)),
    }


def class_rows(classes: Sequence[str], scores: np.ndarray, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """The per-class table as plain numbers, class -> {ap, precision, recall, f1, support, prevalence}."""
    table = per_class_table(scores, targets)
    return {name: {key: float(values[c]) for key, values in table.items()} for c, name in enumerate(classes)}


def site_rows(sites: np.ndarray, scores: np.ndarray, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """Per site the metrics that still mean something on few images."""
    keep = ("macro_ap", "micro_ap", "cf1", "images", "classes_used")
    rows = {}
    for site in sorted(set(sites.tolist())):
        here = sites == site
        metrics = multilabel_metrics(scores[here], targets[here])
        rows[site] = {key: metrics[key] for key in keep}
    return rows


def evaluate_model(context: "RunContext", ref: "ModelRef") -> dict[str, Any]:
    """Scores one model on the pooled test and validation images.

    Args:
        context: The run.
        ref: The model's weights.

    Returns:
        ``metrics`` (test; the validation ones begin with ``val_``), ``per_class`` and ``per_site`` of the test set.
    """
    from pathlib import Path

    from tasks.data.dataset import load_dataset
    from tasks.network import bce_of, build_network, scores

    dataset = load_dataset(Path(context.dataset))
    model = build_network(context, context.open_store(), ref)
    out: dict[str, Any] = {"metrics": {}}
    for split, prefix in (("val", "val_"), ("test", "")):
        rows = dataset.indices(split)
        if len(rows) == 0:
            continue
        logits, targets = scores(context, model, dataset.pictures(rows)), dataset.targets[rows]
        probabilities = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
        metrics = multilabel_metrics(probabilities, targets) | {"loss": bce_of(logits, targets)}
        out["metrics"] |= {prefix + name: value for name, value in metrics.items()}
        if split == "test":
            out["per_class"] = class_rows(context.classes, probabilities, targets)
            out["per_site"] = site_rows(dataset.sites[rows], probabilities, targets)
    return out
