"""Probabilities, losses and predicted labels of both kinds of problem."""

import math

import numpy as np
import pytest
import torch

from models.layers.probabilities import Probabilities
from tasks.core.problem import MultiLabel, SingleLabel, load_problem, primary_metric
from tasks.core.problem_kind import KINDS

LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 0.0, 700.0]], np.float32)
ONE = np.array([[1, 0, 0], [0, 1, 0]], np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_exported_network_gives_the_probabilities_of_the_kind(kind):
    problem = load_problem(kind)
    exported = Probabilities(torch.nn.Identity(), problem.activation)(torch.from_numpy(LOGITS))
    assert exported.numpy() == pytest.approx(problem.probabilities(LOGITS), abs=1e-6)


def test_softmax_by_hand():
    got = SingleLabel().probabilities(np.array([[0.0, math.log(3)]]))
    assert got.tolist() == [pytest.approx([0.25, 0.75])]
    assert SingleLabel().loss(np.array([[0.0, math.log(3)]]), np.array([[1, 0]])) == pytest.approx(math.log(4))


def test_losses_equal_those_of_pytorch():
    logits, targets = torch.from_numpy(LOGITS).double(), torch.from_numpy(ONE)
    single = torch.nn.functional.cross_entropy(logits, targets.argmax(1))
    multi = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.double())
    assert SingleLabel().loss(LOGITS, ONE) == pytest.approx(float(single))
    assert MultiLabel().loss(LOGITS, ONE) == pytest.approx(float(multi))
    assert all(math.isnan(load_problem(kind).loss(LOGITS[:0], ONE[:0])) for kind in KINDS)


def test_predicted_labels():
    probabilities = np.array([[0.4, 0.4, 0.2], [0.1, 0.3, 0.6]])
    assert SingleLabel().predicted(probabilities, 0.9).tolist() == [[True, False, False], [False, False, True]]
    assert MultiLabel().predicted(probabilities, 0.4).tolist() == [[True, True, False], [False, False, True]]
    per_class = MultiLabel().predicted(probabilities, np.array([0.5, 0.3, 0.2]))
    assert per_class.tolist() == [[False, True, True], [False, True, True]]


def test_the_primary_metric_is_that_of_the_kind():
    assert primary_metric({"accuracy": 1, "loss": 2}) == "accuracy"
    assert primary_metric({"val_accuracy": 1}) == "accuracy"
    assert primary_metric({"macro_ap": 1, "accuracy": 1}) == "macro_ap", "a round of an earlier release"
    assert primary_metric({"local/accuracy/mean": 1, "local/loss/mean": 1}) == "accuracy", "without global"
    assert primary_metric({"matched/macro_ap/mean": 1}) == "macro_ap"
    assert primary_metric({}) == "macro_ap"


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="multi_label, single_label"):
        load_problem("regression")
