"""FedAMP's weights between clients, by hand and in their limits."""

import math

import pytest
import torch

from tasks.core.aggregator_spec import AggregatorSpec
from tasks.server.aggregate import aggregate
from tasks.server.aggregation_job import AggregationJob
from tasks.server.personal.fedamp import distance_weights, heuristic_weights
from tests.support.updates import make_context, put_update, random_state


def squares(*places):
    at = torch.tensor(places, dtype=torch.float64)
    return (at[:, None] - at[None]).square()


def test_weights_by_distance_by_hand():
    # Clients at 0, 1 and 3: A'(x) = exp(-x/2)/2 of the squares 1, 9 and 4.
    one, nine, four = (math.exp(-x / 2) / 2 for x in (1, 9, 4))
    found = distance_weights(squares(0.0, 1.0, 3.0), alpha=0.5, sigma=2.0)
    expected = [
        [1 - (one + nine) / 2, one / 2, nine / 2],
        [one / 2, 1 - (one + four) / 2, four / 2],
        [nine / 2, four / 2, 1 - (nine + four) / 2],
    ]
    assert found.tolist() == [pytest.approx(row) for row in expected]


def test_alpha_is_bounded_so_that_no_weight_is_negative():
    found = distance_weights(squares(0.0, 1.0, 3.0), alpha=1e9, sigma=2.0)
    one, nine, four = (math.exp(-x / 2) / 2 for x in (1, 9, 4))
    assert found.min() >= 0 and float(found[1, 1]) == pytest.approx(0, abs=1e-12)  # the one in the middle gives all
    assert found[0].tolist() == pytest.approx(
        [1 - (one + nine) / (one + four), one / (one + four), nine / (one + four)]
    )
    assert found.sum(1).tolist() == pytest.approx([1, 1, 1])


def test_clients_that_are_far_apart_stay_alone():
    assert torch.equal(distance_weights(squares(0.0, 1e6), alpha=1e4, sigma=1.0), torch.eye(2, dtype=torch.float64))


def test_heuristic_weights_by_hand():
    cosines = torch.tensor([[1, 0.5, 0], [0.5, 1, 0.5], [0, 0.5, 1]], dtype=torch.float64)
    near, far = math.exp(2 * 0.5), math.exp(0)
    found = heuristic_weights(cosines, sigma=2.0, self_weight=0.4)
    assert found[0].tolist() == pytest.approx([0.4, 0.6 * near / (near + far), 0.6 * far / (near + far)])
    assert found[1].tolist() == pytest.approx([0.3, 0.4, 0.3])
    assert torch.equal(heuristic_weights(cosines, 2.0, 1.0), torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("version", ["heuristic", "distance"])
def test_cloud_models_are_mixtures_of_whole_models(tmp_path, version):
    context, given = make_context(tmp_path), {client: random_state(seed) for seed, client in enumerate("abc")}
    updates = tuple(put_update(context, client, state) for client, state in given.items())
    values = {"version": version, "sigma": 5.0, "alpha": 0.3}
    made = aggregate(context, AggregationJob(AggregatorSpec("tasks.server.personal.fedamp", values), updates))
    flat = torch.stack([torch.cat([s["fc.bias"], s["fc.weight"].flatten()]).double() for s in given.values()])
    if version == "distance":
        weights = distance_weights(torch.cdist(flat, flat).square(), 0.3, 5.0)
    else:
        weights = heuristic_weights(torch.nn.functional.cosine_similarity(flat[:, None], flat[None], dim=2), 5.0, 1 / 3)
    for client, row in zip("abc", weights, strict=True):
        cloud = context.open_store().get_state(made.models[f"client/{client}"])
        for name in ("fc.weight", "bn.running_mean"):
            expected = sum(w * state[name].double() for w, state in zip(row, given.values(), strict=True))
            assert torch.allclose(cloud[name].double(), expected, atol=1e-6), name
        assert cloud["bn.num_batches_tracked"] == given[client]["bn.num_batches_tracked"]
    alone = aggregate(context, AggregationJob(AggregatorSpec("tasks.server.personal.fedamp", values), updates[:1]))
    assert alone.models["client/a"].digest == updates[0].model.digest
