"""Single-label metrics against scikit-learn and hand counts, with their chance levels and intervals."""

import math

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss, precision_score, recall_score

from tasks.core.evaluation_settings import EvaluationSettings
from tasks.evaluation.metric_sets import class_rows, intervals, metric_set, site_rows
from tasks.evaluation.single_label import (
    chance_levels,
    confusion_counts,
    single_label_metrics,
)

DEFAULT, ZERO = EvaluationSettings(), EvaluationSettings(zero_support="zero")
METRICS = metric_set("single_label")
SCORES = np.array([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1], [0.1, 0.8, 0.1], [0.2, 0.5, 0.3]])
TARGETS = np.eye(3, dtype=np.uint8)[[0, 0, 1, 2]]  # predicted: 0, 1, 1, 1


def random_case(seed, images=80, classes=7, missing=()):
    rng = np.random.default_rng(seed)
    known = [c for c in range(classes) if c not in missing]
    targets = np.eye(classes, dtype=np.uint8)[rng.choice(known, images)]
    scores = rng.dirichlet(np.ones(classes), images) + 0.4 * targets
    return scores / scores.sum(axis=1, keepdims=True), targets


def test_metrics_by_hand():
    # Class 0: 1 of 1 predictions right, 1 of 2 found. Class 1: 1 of 3 right, 1 of 1 found. Class 2: none.
    got = single_label_metrics(SCORES, TARGETS)
    assert got["accuracy"] == 0.5
    assert got["balanced_accuracy"] == got["macro_recall"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert got["macro_precision"] == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert got["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert (got["images"], got["classes_used"], got["classes_without_positives"]) == (4, 3, 0)
    assert "top5_accuracy" not in got, "five of three classes say nothing"
    assert confusion_counts(SCORES, TARGETS) == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    rows = class_rows(METRICS, list("abc"), SCORES, TARGETS)
    assert rows["b"] == {
        "precision": pytest.approx(1 / 3),
        "recall": 1.0,
        "f1": 0.5,
        "support": 1.0,
        "prevalence": 0.25,
    }


@pytest.mark.parametrize("case", [{"seed": 0}, {"seed": 1, "missing": (2, 5)}, {"seed": 2, "images": 3}])
def test_metrics_equal_those_of_scikit_learn(case):
    scores, targets = random_case(**case)
    true, predicted = targets.argmax(1), scores.argmax(1)
    used = np.unique(true)
    options = {"labels": used, "average": "macro", "zero_division": 0}
    got = single_label_metrics(scores, targets)
    assert got["accuracy"] == pytest.approx(accuracy_score(true, predicted))
    with pytest.warns() if set(predicted) - set(true) else _nothing():
        assert got["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(true, predicted))
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert got[f"macro_{name}"] == pytest.approx(function(true, predicted, **options)), name
    top5 = np.mean([label in np.argsort(-row)[:5] for row, label in zip(scores, true, strict=True)])
    assert got["top5_accuracy"] == pytest.approx(top5)


def _nothing():
    import contextlib

    return contextlib.nullcontext()


def test_classes_without_images_are_excluded_or_count_as_zero():
    scores, targets = random_case(3, missing=(0, 4))
    out, zero = single_label_metrics(scores, targets), single_label_metrics(scores, targets, ZERO)
    for name in ("macro_precision", "macro_recall", "macro_f1"):
        assert zero[name] == pytest.approx(out[name] * 5 / 7), name
    for name in ("accuracy", "balanced_accuracy", "top5_accuracy"):
        assert zero[name] == out[name], name
    assert (out["classes_used"], zero["classes_used"], out["classes_without_positives"]) == (5, 7, 2)


def test_without_images_or_with_a_nan_score_nothing_is_defined():
    broken = SCORES.copy()
    broken[0, 0] = math.nan
    for scores, targets in ((SCORES[:0], TARGETS[:0]), (broken, TARGETS)):
        got = single_label_metrics(scores, targets)
        assert all(math.isnan(got[name]) for name in ("accuracy", "balanced_accuracy", "macro_f1"))
        assert got["images"] == len(targets)
        assert intervals(METRICS, scores, targets, DEFAULT, np.random.default_rng(0)) == {}
    assert confusion_counts(SCORES[:0], TARGETS[:0]) == [[0, 0, 0]] * 3


def test_chance_levels_are_those_of_the_dummy_classifier():
    _, train = random_case(4, images=200)
    _, test = random_case(5, images=60)
    train = np.vstack([train, np.eye(7, dtype=np.uint8)[[3] * 40]])  # class 3 is by far the most frequent
    dummy = DummyClassifier(strategy="prior").fit(np.zeros((len(train), 1)), train.argmax(1))
    true, predicted = test.argmax(1), dummy.predict(np.zeros((len(test), 1)))
    levels = chance_levels(train, test, DEFAULT)
    assert levels["accuracy"] == pytest.approx(accuracy_score(true, predicted))
    assert levels["balanced_accuracy"] == pytest.approx(1 / 7)
    assert levels["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro", zero_division=0))
    expected = log_loss(true, dummy.predict_proba(np.zeros((len(test), 1))), labels=np.arange(7))
    assert levels["loss"] == pytest.approx(expected, rel=0.02), "but for the smoothing"
    assert math.isfinite(chance_levels(np.eye(7, dtype=np.uint8)[[0]], test, DEFAULT)["loss"])


def test_intervals_equal_explicit_resampling():
    scores, targets = random_case(6)
    got = intervals(METRICS, scores, targets, DEFAULT, np.random.default_rng(7))
    counts = np.random.default_rng(7).multinomial(len(targets), np.full(len(targets), 1 / len(targets)), size=200)
    found = [
        single_label_metrics(scores[rows], targets[rows])
        for rows in (np.repeat(range(len(row)), row) for row in counts)
    ]
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "top5_accuracy"):
        low, high = np.quantile([row[name] for row in found], [0.025, 0.975])
        assert (got[f"{name}/low"], got[f"{name}/high"]) == (pytest.approx(low), pytest.approx(high)), name


def test_of_equal_scores_the_first_class_is_higher_in_the_metric_and_in_its_interval():
    scores, targets = np.full((6, 6), 1 / 6), np.eye(6, dtype=np.uint8)  # the sixth class is below the first five
    assert single_label_metrics(scores, targets)["top5_accuracy"] == pytest.approx(5 / 6)
    counts = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 6]])
    got = METRICS.resampled(scores, targets, counts, DEFAULT, 0.5)
    assert got["top5_accuracy"] == pytest.approx([5 / 6, 0])


def test_rows_of_sites():
    rows = site_rows(METRICS, np.array(["b", "a", "b", "b"]), SCORES, TARGETS)
    assert list(rows) == ["a", "b"]
    assert rows["b"]["accuracy"] == pytest.approx(2 / 3)
    assert (rows["a"]["accuracy"], rows["a"]["images"], rows["a"]["classes_used"]) == (0.0, 1.0, 1.0)
