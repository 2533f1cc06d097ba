"""CPFL's weights between clients, by hand and in their limits."""

import math

import numpy as np
import pytest
import torch

from tasks.core.aggregator_spec import AggregatorSpec
from tasks.server.aggregate import aggregate
from tasks.server.aggregation_job import AggregationJob
from tasks.server.personal.cpfl import emd_matrix, emd_weights, quantile_sketch
from tests.support.updates import make_context, put_update, random_state


def test_the_distance_is_that_of_scipy():
    from scipy.stats import wasserstein_distance

    values = np.random.default_rng(3).normal(size=(3, 50)) * np.array([[1.0], [2.0], [5.0]])
    found = emd_matrix(np.stack([quantile_sketch(row, 50) for row in values]))
    expected = [[wasserstein_distance(a, b) for b in values] for a in values]
    assert found == pytest.approx(np.array(expected))


def test_the_distance_ignores_which_entry_moved():
    """The caution of docs/algorithms/cpfl.md: (1, 0) and (0, 1) are alike."""
    sketches = np.stack([quantile_sketch(np.array(row), 9) for row in ([1.0, 0.0], [0.0, 1.0], [3.0, 0.0])])
    assert emd_matrix(sketches).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]


def test_a_sketch_has_the_middles_of_q_equal_parts():
    assert quantile_sketch(np.arange(10.0)[::-1], 2).tolist() == [2.0, 7.0]
    assert quantile_sketch(np.array([3.0, 1.0]), 2).tolist() == [1.0, 3.0]


def test_weights_by_hand():
    """Distances 1, 2 and 3, mean 2; tau 0.5: s = exp(-EMD)."""
    distances = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    found = emd_weights(distances, self_weight=0.4, tau=0.5)
    near, far = math.exp(-1), math.exp(-2)
    assert found[0] == pytest.approx([0.4, 0.6 * near / (near + far), 0.6 * far / (near + far)])
    assert found.sum(axis=1) == pytest.approx([1, 1, 1])
    back = [2, 0, 1]
    assert emd_weights(distances[np.ix_(back, back)], 0.4, 0.5) == pytest.approx(found[np.ix_(back, back)])


def test_limits():
    apart = np.array([[0.0, 1e9, 1.0], [1e9, 0.0, 1e9], [1.0, 1e9, 0.0]])
    assert np.isfinite(emd_weights(apart, 0.5, 1e-6)).all(), "no 0 / 0 however far a client is"
    assert emd_weights(apart, 1.0, 0.5).tolist() == np.eye(3).tolist()
    assert emd_weights(np.zeros((3, 3)), 0.5, 0.5)[0].tolist() == [0.5, 0.25, 0.25]
    assert emd_weights(np.zeros((1, 1)), 0.5, 0.5).tolist() == [[1.0]]


@pytest.mark.parametrize("compare", ["updates", "weights"])
def test_models_are_mixtures_by_the_distance_between_changes(tmp_path, compare):
    context, given = make_context(tmp_path), {client: random_state(seed) for seed, client in enumerate("abc")}
    begun = {client: random_state(seed + 10) for seed, client in enumerate("abc")}
    updates = tuple(put_update(context, client, state) for client, state in given.items())
    store = context.open_store()
    starts = tuple(store.put_state(f"start-{client}.safetensors", state) for client, state in begun.items())
    job = AggregationJob(
        AggregatorSpec("tasks.server.personal.cpfl", {"compare": compare}), updates, starts[0], starts=starts
    )
    made = aggregate(context, job)

    def flat(state):
        return torch.cat([state["fc.bias"], state["fc.weight"].flatten()]).double()

    rows = [flat(given[c]) - (flat(begun[c]) if compare == "updates" else 0) for c in "abc"]
    weights = emd_weights(emd_matrix(np.stack([row.sort().values.numpy() for row in rows])), 0.5, 0.5)
    for client, row in zip("abc", weights, strict=True):
        mixed = context.open_store().get_state(made.models[f"client/{client}"])
        for name in ("fc.weight", "bn.running_mean"):
            expected = sum(w * state[name].double() for w, state in zip(row, given.values(), strict=True))
            assert torch.allclose(mixed[name].double(), expected, atol=1e-6), name


def test_with_self_weight_1_a_client_gets_its_own_model_back(tmp_path):
    context = make_context(tmp_path)
    updates = tuple(put_update(context, client, random_state(seed)) for seed, client in enumerate("abc"))
    values = {"compare": "weights", "self_weight": 1.0}
    made = aggregate(context, AggregationJob(AggregatorSpec("tasks.server.personal.cpfl", values), updates))
    assert [made.models[f"client/{u.client}"].digest for u in updates] == [u.model.digest for u in updates]
