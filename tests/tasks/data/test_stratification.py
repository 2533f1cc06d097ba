"""Iterative stratification: an example by hand, and the draws of the library that has the same algorithm."""

import numpy as np
import pytest
from iterstrat.ml_stratifiers import IterativeStratification

from tasks.data.stratification import iterative_stratification


def test_the_rarest_label_comes_first():
    # Units 0 and 3 have label 1: one for each split. Then each split lacks one of the two others.
    labels = np.array([[1, 1], [1, 0], [1, 0], [1, 1]], dtype=bool)
    for seed in range(5):
        found = iterative_stratification(labels, np.array([0.5, 0.5]), np.random.RandomState(seed))
        assert found[0] != found[3]
        assert sorted(found.tolist()) == [0, 0, 1, 1]


def test_a_split_without_a_share_stays_empty():
    found = iterative_stratification(np.ones((8, 1), dtype=bool), np.array([0.75, 0.0, 0.25]), np.random.RandomState(0))
    assert np.bincount(found, minlength=3).tolist() == [6, 0, 2]


@pytest.mark.parametrize("seed", range(60))
def test_splits_are_those_of_the_library(seed):
    rng = np.random.default_rng(seed)
    units, classes = rng.integers(1, 120), rng.integers(0, 9)
    labels = rng.random((units, classes)) < rng.random(classes) ** 2
    shares = rng.choice([0.0, 0.1, 0.2, 0.5, 0.7], 3) + np.array([0.1, 0, 0])
    ours, theirs = np.random.RandomState(seed), np.random.RandomState(seed)
    found = iterative_stratification(labels, shares / shares.sum(), ours)
    assert found.tolist() == IterativeStratification(labels, shares / shares.sum(), theirs).tolist()
    assert ours.randint(2**31) == theirs.randint(2**31)
