"""Chance levels against the metrics of explicit predictors; intervals against explicit resampling."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tasks.core.evaluation_settings import EvaluationSettings
from tasks.evaluation.bootstrap import weighted_ap
from tasks.evaluation.chance import chance_levels
from tasks.evaluation.metric_sets import intervals, metric_set
from tasks.evaluation.metrics import multilabel_metrics

DEFAULT = EvaluationSettings()
METRICS = metric_set("multi_label")


def labels(seed, images, shares):
    return (np.random.default_rng(seed).random((images, len(shares))) < shares).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("zero_support", ["exclude", "zero", "zero_f1"])
@pytest.mark.parametrize("seed", range(4))
def test_levels_are_the_metrics_of_predictors_that_ignore_the_image(seed, zero_support):
    settings = EvaluationSettings(zero_support=zero_support)
    shares = np.random.default_rng(seed).uniform(0.02, 0.95, 6)
    train, test = labels(seed, 300, shares), labels(seed + 100, 80, shares)
    if seed == 3:
        test[:, 2] = 0
    levels = chance_levels(train, test, settings)

    prior = np.tile(train.mean(axis=0), (len(test), 1))
    expected = multilabel_metrics(prior, test, settings)
    assert levels["macro_ap"] == pytest.approx(expected["macro_ap"])
    assert levels["micro_ap"] == pytest.approx(expected["micro_ap"])

    order = np.argsort(-train.mean(axis=0), kind="stable")
    for name in ("cf1", "mean_f1", "micro_f1"):
        values = []
        for k in range(1, 7):
            chosen = np.zeros(6)
            chosen[order[:k]] = 1
            values.append(tuple(multilabel_metrics(np.tile(chosen, (len(y), 1)), y, settings)[name]
                              for y in (train, test)))  # fmt: skip
        assert levels[name] == pytest.approx(max(values)[1])


def test_a_frequent_label_has_high_chance_levels():
    """One label on 9 of 10 images: always yes reaches an F1 of 18/19, and an AP of 0.9."""
    test = np.array([[1]] * 9 + [[0]])
    levels = chance_levels(test, test, DEFAULT)
    assert levels["cf1"] == pytest.approx(18 / 19)
    assert levels["macro_ap"] == levels["micro_ap"] == pytest.approx(0.9)


def test_the_chance_level_of_accuracy_is_the_share_of_the_largest_class():
    train = np.eye(3, dtype=int)[[0, 0, 1, 2, 0]]
    test = np.eye(3, dtype=int)[[0, 1, 1, 2]]
    assert chance_levels(train, test, DEFAULT)["accuracy"] == 0.25


def test_levels_are_undefined_without_a_positive():
    train, test = labels(1, 20, [0.5, 0.5]), np.zeros((5, 2), int)
    levels = chance_levels(train, test, DEFAULT)
    assert all(np.isnan(levels[name]) for name in ("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1"))
    assert np.isfinite(levels["loss"])


@pytest.mark.parametrize("seed", range(5))
def test_weighted_ap_equals_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    scores, true = rng.random(40).round(1), rng.random(40) < 0.4  # rounded: ties
    weights = rng.integers(0, 4, (7, 40)).astype(float)
    expected = [average_precision_score(true, scores, sample_weight=row) for row in weights]
    assert weighted_ap(scores, true, weights) == pytest.approx(expected)


def test_intervals_contain_the_metrics_and_narrow_with_more_images():
    widths = []
    for images in (40, 1000):
        true = labels(3, images, [0.3, 0.6, 0.1])
        scores = np.clip(0.3 * true + np.random.default_rng(4).random(true.shape) * 0.7, 0, 1)
        found = intervals(METRICS, scores, true, DEFAULT, np.random.default_rng(5))
        metrics = multilabel_metrics(scores, true)
        for name in ("macro_ap", "micro_ap", "cf1"):
            assert found[f"{name}/low"] < metrics[name] < found[f"{name}/high"]
        widths.append(found["macro_ap/high"] - found["macro_ap/low"])
    assert widths[1] < widths[0] / 2


@pytest.mark.slow
def test_intervals_equal_the_quantiles_over_resampled_images():
    # the same resamples, each evaluated by the metrics themselves
    true = labels(6, 30, [0.4, 0.5])
    scores = np.random.default_rng(7).random(true.shape)
    counts = np.random.default_rng(8).multinomial(30, np.full(30, 1 / 30), size=200)
    rows = [np.repeat(np.arange(30), row) for row in counts]
    found = intervals(METRICS, scores, true, DEFAULT, np.random.default_rng(8))
    for name in ("macro_ap", "micro_ap", "cf1"):
        values = [multilabel_metrics(scores[row], true[row])[name] for row in rows]
        assert [found[f"{name}/low"], found[f"{name}/high"]] == pytest.approx(np.quantile(values, [0.025, 0.975]))


def test_too_few_or_too_many_images_have_no_interval():
    one = np.ones((1, 2))
    assert intervals(METRICS, one, one, DEFAULT, np.random.default_rng(0)) == {}
    two = np.ones((2, 2))
    assert intervals(METRICS, two, two, DEFAULT, np.random.default_rng(0))
    assert intervals(replace(METRICS, max_cells=3), two, two, DEFAULT, np.random.default_rng(0)) == {}
