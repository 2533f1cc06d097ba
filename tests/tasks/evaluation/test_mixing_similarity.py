"""Whether similar clients weigh more in each other's models, as a rank correlation."""

import math

import numpy as np
import pytest

from tasks.evaluation.evaluate import evaluate_model
from tasks.evaluation.mixing_similarity import METRIC, label_similarity, rank_correlation
from tests.support.rounds import PLAIN_SGD, make_context, run_rounds

# Clients 0 and 1 have the first label, client 2 mostly the second.
COUNTS = np.array([[4, 0], [2, 0], [1, 3]])


def test_similarity_is_the_cosine_of_label_counts():
    found = label_similarity(COUNTS)
    assert found[0, 1] == pytest.approx(1.0) and found[0, 2] == pytest.approx(1 / math.sqrt(10))
    assert label_similarity(np.array([[1, 0], [0, 0]]))[0, 1] == 0.0


def test_weights_in_the_order_of_similarity_correlate_fully():
    similarity = np.array([[1, 0.9, 0.1], [0.9, 1, 0.5], [0.1, 0.5, 1]])
    weights = np.array([[0.5, 0.45, 0.05], [0.3, 0.4, 0.2], [0.1, 0.4, 0.5]])
    # Shares of others: 0.9, 0.1; 0.6, 0.4; 0.2, 0.8. Cosines: 0.9, 0.1; 0.9, 0.5; 0.1, 0.5.
    ranks = np.corrcoef([6, 1, 4, 3, 2, 5], [5.5, 1.5, 5.5, 3.5, 1.5, 3.5])[0, 1]
    assert rank_correlation(weights, similarity) == pytest.approx(ranks)
    assert rank_correlation(similarity, similarity) > 0.5
    assert rank_correlation(1 - similarity, similarity) < -0.5


def test_equal_weights_have_no_correlation():
    assert math.isnan(rank_correlation(np.full((3, 3), 1 / 3), label_similarity(COUNTS)))


def test_own_weights_do_not_count():
    similarity = np.array([[1, 0.9, 0.1], [0.9, 1, 0.5], [0.1, 0.5, 1]])
    low = similarity / similarity.sum(axis=1, keepdims=True)
    high = np.where(np.eye(3) == 1, 0.9, 0.1 * similarity)
    assert rank_correlation(low, similarity) == pytest.approx(rank_correlation(high, similarity))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "measured"), [("fedscrap", True), ("fedavg", False)])
def test_rounds_that_mix_models_are_measured(method, measured, tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    (fed,) = run_rounds(1, method, context, start, tiny_data.sizes)
    metrics = evaluate_model(context, fed.record.state)["metrics"]
    assert (METRIC in metrics) == measured
    assert not measured or -1 <= metrics[METRIC] <= 1
