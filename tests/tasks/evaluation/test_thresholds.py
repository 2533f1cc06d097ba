"""Thresholds per class: the best F1 on the images they are tuned on, and the classes that keep the common one."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tasks.evaluation.thresholds import best_threshold, tuned_thresholds


def column(*values):
    return np.array(values, float)


def test_the_threshold_lies_between_the_scores_that_it_separates():
    # Accepting 0.4 and 0.6 finds both positives and nothing else: F1 is 1, and 0.2 to 0.4 is free.
    assert best_threshold(column(0.1, 0.2, 0.4, 0.6), np.array([0, 0, 1, 1], bool), 0.5) == pytest.approx(0.3)


def test_a_rare_class_with_low_scores_is_found():
    scores, true = column(0.01, 0.02, 0.08, 0.03), np.array([0, 0, 1, 0], bool)
    assert best_threshold(scores, true, 0.5) == pytest.approx(0.055)


def test_accepting_all_halves_the_lowest_score():
    assert best_threshold(column(0.2, 0.6), np.array([1, 1], bool), 0.05) == pytest.approx(0.1)


def test_of_equally_good_thresholds_the_one_nearest_to_the_common_one_counts():
    # From the top: accept 0.9: P 1, R 1/2, F1 2/3; accept all: P 2/4, R 1, F1 2/3. 0.8 is nearer to 0.5 than 0.15.
    scores, true = column(0.9, 0.7, 0.5, 0.3), np.array([1, 0, 0, 1], bool)
    assert best_threshold(scores, true, 0.5) == pytest.approx(0.8)
    assert best_threshold(scores, true, 0.1) == pytest.approx(0.15)


def test_equal_scores_are_accepted_together():
    threshold = best_threshold(column(0.5, 0.5, 0.5), np.array([1, 0, 0], bool), 0.9)
    assert threshold == pytest.approx(0.25)


def test_it_is_the_best_of_all_thresholds():
    rng = np.random.default_rng(4)
    for _ in range(20):
        true = rng.random(30) < 0.3
        scores = np.clip(0.3 * true + 0.7 * rng.random(30), 0, 1).round(2)  # with ties
        if not true.any():
            continue
        accepted = scores >= np.linspace(0.001, 0.999, 999)[:, None]
        best = (
            2 * (accepted & true).sum(axis=1) / (accepted.sum(axis=1) + true.sum())
        ).max()  # 2 TP / (2 TP + FP + FN)
        found = f1_score(true, scores >= best_threshold(scores, true, 0.5), zero_division=0)
        assert found == pytest.approx(best)


def test_classes_without_positives_and_undefined_scores_keep_the_common_threshold():
    scores = np.array([[0.2, 0.3, np.nan], [0.8, 0.4, 0.5]])
    targets = np.array([[0, 0, 1], [1, 0, 0]])
    assert tuned_thresholds(scores, targets, 0.35).tolist() == pytest.approx([0.5, 0.35, 0.35])
    assert tuned_thresholds(np.zeros((0, 3)), np.zeros((0, 3)), 0.35).tolist() == [0.35] * 3


def test_thresholds_stay_within_zero_and_one():
    found = tuned_thresholds(np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[1, 0], [1, 1]]), 0.5)
    assert ((found > 0) & (found < 1)).all()
    assert best_threshold(column(1.0, 0.999), np.array([1, 0], bool), 0.5) < 1
