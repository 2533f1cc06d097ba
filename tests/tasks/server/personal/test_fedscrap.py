"""FedScrap's server on made-up updates, against the same written out for whole models in memory."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import UserError
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState
from tasks.core.state_schema import read_schema
from tasks.core.state_stream import StateFile
from tasks.server.aggregate import aggregate
from tasks.server.aggregation_job import AggregationJob
from tasks.server.aggregators.mixing import SparseRow
from tasks.server.aggregators.received import Received
from tasks.server.mixing_record import read_mixing
from tasks.server.personal.fedscrap import LayerAttention, Settings
from tests.support.updates import make_context, put_start, put_update, random_state

IDS, SIZES = "abcd", (10, 30, 60, 20)
SCRAP = "tasks.server.personal.fedscrap"
MEANS, VARIANCES = "bn.running_mean", "bn.running_var"


def states(shape=(3, 4)):
    return {client: random_state(seed, shape) for seed, client in enumerate(IDS)}


def run(folder, given=None, *, policy="avg", sizes=SIZES, facts=None, starts=None, weights=None, **settings):
    """Aggregate the clients' states; return the job's result, the models and the context."""
    given = given or states()
    context = make_context(folder, policy)
    updates = tuple(put_update(context, c, s, size) for (c, s), size in zip(given.items(), sizes, strict=False))
    if starts:
        starts = tuple(context.open_store().put_state(f"begun-{c}.safetensors", s) for c, s in starts.items())
    job = AggregationJob(AggregatorSpec(SCRAP, settings), updates, weights=weights, facts=facts or {}, starts=starts)
    made = aggregate(context, job)
    return made, {name: context.open_store().get_state(ref) for name, ref in made.models.items()}, context


def flat(state, *names):
    return torch.cat([state[name].double().flatten() for name in names])


def centred_attention(given, *names, temperature=0.5):
    """softmax(cos(D_i, D_j) / T) of D_i = w_i - mean w, client by client."""
    values = [flat(state, *names) for state in given.values()]
    mean = sum(values) / len(values)
    cos = [[torch.dot(a - mean, b - mean) / ((a - mean).norm() * (b - mean).norm()) for b in values] for a in values]
    return (torch.tensor(cos, dtype=torch.float64) / temperature).softmax(1)


def mixed(given, weights, name):
    return sum(w * state[name].double() for w, state in zip(weights, given.values(), strict=True))


# ``fc`` owns weight and bias; ``bn`` has statistics only, as in ``affine=False``.
def test_each_client_is_given_its_mixture_of_every_layer(tmp_path):
    given = states()
    made, models, _ = run(tmp_path, given)
    weights = centred_attention(given, "fc.bias", "fc.weight")
    assert list(models) == ["global", *(f"client/{client}" for client in IDS)]
    for client, row in zip(IDS, weights, strict=True):
        for name in ("fc.weight", "fc.bias"):
            assert torch.allclose(models[f"client/{client}"][name].double(), mixed(given, row, name), atol=1e-6)
        assert models[f"client/{client}"]["bn.num_batches_tracked"] == given[client]["bn.num_batches_tracked"]
        assert torch.equal(models[f"client/{client}"][MEANS], given[client][MEANS])  # of no layer: its own
    total = [size / sum(SIZES) for size in SIZES]
    assert torch.allclose(models["global"]["fc.weight"].double(), mixed(given, total, "fc.weight"), atol=1e-6)
    assert made.weights["global"] == pytest.approx(dict(zip(IDS, total, strict=True)))


def test_layers_differ_and_the_whole_model_has_one_row(tmp_path):
    given = states()
    _, models, _ = run(tmp_path / "tensor", given, granularity="tensor")
    for name in ("fc.weight", "fc.bias"):
        row = centred_attention(given, name)[0]
        assert torch.allclose(models["client/a"][name].double(), mixed(given, row, name), atol=1e-6)
    _, models, _ = run(tmp_path / "model", given, granularity="model")
    row = centred_attention(given, "fc.bias", "fc.weight")[1]
    assert torch.allclose(models["client/b"]["fc.bias"].double(), mixed(given, row, "fc.bias"), atol=1e-6)
    assert torch.allclose(models["client/b"][MEANS].double(), mixed(given, row, MEANS), atol=1e-6)


@pytest.mark.parametrize("policy", ["avg", "total_variance"])
@pytest.mark.parametrize("buffers", ["pooled", "linear", "own"])
def test_statistics_follow_their_layer(tmp_path, buffers, policy):
    given = states()
    _, models, _ = run(tmp_path, given, policy=policy, granularity="model", buffers=buffers)
    for client, row in zip(IDS, centred_attention(given, "fc.bias", "fc.weight"), strict=True):
        own, mean, linear = models[f"client/{client}"], mixed(given, row, MEANS), mixed(given, row, VARIANCES)
        second = sum(w * (s[VARIANCES] + s[MEANS].square()).double() for w, s in zip(row, given.values(), strict=True))
        expected = {
            "pooled": (mean, second - mean.square()),
            "linear": (mean, linear),
            "own": (given[client][MEANS].double(), given[client][VARIANCES].double()),
        }[buffers]
        assert torch.allclose(own[MEANS].double(), expected[0], atol=1e-6)
        assert torch.allclose(own[VARIANCES].double(), expected[1], atol=1e-6)
    share = [size / sum(SIZES) for size in SIZES]
    plain = torch.allclose(models["global"][VARIANCES].double(), mixed(given, share, VARIANCES), atol=1e-6)
    assert plain == (policy == "avg")  # the global model is FedAvg's


@pytest.mark.parametrize("dense", [1, 16])
def test_pooled_variances_of_many_clients_are_a_product_of_matrices(tmp_path, dense, monkeypatch):
    monkeypatch.setattr("tasks.server.aggregate.DENSE", dense)
    given = states()
    _, models, _ = run(tmp_path, given, granularity="model")
    row = centred_attention(given, "fc.bias", "fc.weight")[3]
    second = sum(w * (s[VARIANCES] + s[MEANS].square()).double() for w, s in zip(row, given.values(), strict=True))
    pooled = second - mixed(given, row, MEANS).square()
    assert torch.allclose(models["client/d"][VARIANCES].double(), pooled, atol=1e-6)
    assert torch.allclose(models["client/d"]["fc.weight"].double(), mixed(given, row, "fc.weight"), atol=1e-6)


@pytest.mark.parametrize("buffers", ["pooled", "linear", "own"])
def test_a_self_weight_of_one_is_local_training_bit_for_bit(tmp_path, buffers):
    given = states()
    _, models, _ = run(tmp_path, given, self_weight=1.0, granularity="model", buffers=buffers)
    for client, state in given.items():
        assert all(torch.equal(models[f"client/{client}"][name], value) for name, value in state.items())


def test_the_order_of_updates_changes_nothing(tmp_path):
    given = states()
    one, _, _ = run(tmp_path / "one", given)
    other, _, _ = run(tmp_path / "other", dict(reversed(given.items())), sizes=SIZES[::-1])
    assert {name: ref.digest for name, ref in one.models.items()} == {n: r.digest for n, r in other.models.items()}


def test_changes_are_taken_from_each_clients_own_start(tmp_path):
    given, starts = states(), {client: random_state(20 + k) for k, client in enumerate(IDS)}
    _, models, _ = run(tmp_path, given, starts=starts, attention="update_cosine", temperature=0.4)
    changes = [flat(given[c], "fc.bias", "fc.weight") - flat(starts[c], "fc.bias", "fc.weight") for c in IDS]
    cos = torch.tensor([[torch.dot(a, b) / (a.norm() * b.norm()) for b in changes] for a in changes])
    row = (cos.double() / 0.4).softmax(1)[2]
    assert torch.allclose(models["client/c"]["fc.weight"].double(), mixed(given, row, "fc.weight"), atol=1e-6)
    with pytest.raises(UserError, match="each client started from"):
        run(tmp_path / "none", given, attention="update_cosine")


def test_absent_clients_are_attended_to_and_get_no_model(tmp_path):
    given = states()
    facts, weights = {"stale": ["b"]}, (0.5, 0.0, 0.25, 0.25)
    made, models, context = run(tmp_path, given, facts=facts, weights=weights)
    assert list(models) == ["global", "client/a", "client/c", "client/d"]
    row = centred_attention(given, "fc.bias", "fc.weight")[0]
    assert row[1] > 0.01 and torch.allclose(
        models["client/a"]["fc.weight"].double(), mixed(given, row, "fc.weight"), atol=1e-6
    )
    assert made.weights["global"] == {"a": 0.5, "c": 0.25, "d": 0.25}
    record = read_mixing(context.open_store(), RoundState(server={"mixing": made.mixing}))
    assert (record.models, record.clients) == (("a", "c", "d"), ("a", "b", "c", "d"))
    square = record.square(tuple("abcd"))["fc"]
    assert square[1].tolist() == [0, 1, 0, 0] and np.allclose(square[0], row, atol=1e-6)


def test_the_weights_are_recorded_by_layer(tmp_path):
    given = states()
    made, _, context = run(tmp_path, given, granularity="tensor")
    record = read_mixing(context.open_store(), RoundState(server={"mixing": made.mixing}))
    assert record.models == record.clients == tuple(IDS) and list(record.layers) == ["fc.bias", "fc.weight"]
    for name, weights in record.layers.items():
        assert np.allclose(weights, centred_attention(given, name), atol=1e-6)
    assert read_mixing(context.open_store(), RoundState()) is None


def test_the_largest_weights_alone_are_mixed_and_stored(tmp_path):
    given = states()
    made, models, context = run(tmp_path, given, top_k=2)
    weights = centred_attention(given, "fc.bias", "fc.weight")
    kept = torch.where(weights >= weights.sort(1, descending=True).values[:, 1:2], weights, torch.zeros_like(weights))
    kept /= kept.sum(1, keepdim=True)
    for client, row in zip(IDS, kept, strict=True):
        assert (row > 0).sum() == 2
        assert torch.allclose(
            models[f"client/{client}"]["fc.weight"].double(), mixed(given, row, "fc.weight"), atol=1e-6
        )
    record = read_mixing(context.open_store(), RoundState(server={"mixing": made.mixing}))
    assert np.allclose(record.layers["fc"], kept, atol=1e-6)
    stored = context.open_store().get_state(made.mixing)
    assert stored["weights/0"].shape == (8,) and stored["counts/0"].tolist() == [2, 2, 2, 2]


def test_as_many_as_there_are_is_all(tmp_path):
    one, _, _ = run(tmp_path / "one")
    other, _, _ = run(tmp_path / "other", top_k=4)
    assert {name: ref.digest for name, ref in one.models.items()} == {n: r.digest for n, r in other.models.items()}


def test_what_clients_keep_takes_no_part(tmp_path):
    given = {client: {k: v for k, v in state.items() if k != "fc.bias"} for client, state in states().items()}
    context = make_context(tmp_path)
    updates = tuple(put_update(context, client, state) for client, state in given.items())
    start = put_start(context, random_state(9))
    made = aggregate(context, AggregationJob(AggregatorSpec(SCRAP, {}), updates, start))
    state = context.open_store().get_state(made.models["client/a"])
    assert torch.equal(state["fc.bias"], random_state(9)["fc.bias"])
    row = centred_attention(given, "fc.weight")[0]
    assert torch.allclose(state["fc.weight"].double(), mixed(given, row, "fc.weight"), atol=1e-6)


def test_a_finished_aggregation_is_found_with_its_record(tmp_path):
    context = make_context(tmp_path)
    updates = tuple(put_update(context, client, state) for client, state in states().items())
    job = AggregationJob(AggregatorSpec(SCRAP, {"top_k": 2}), updates)
    first, again = aggregate(context, job), aggregate(context, job)
    assert (list(again.models.items()), again.mixing) == (list(first.models.items()), first.mixing)
    assert {name: again.weights[name] for name in again.weights} == {n: first.weights[n] for n in first.weights}
    context.open_store().delete(first.mixing.uri)
    assert aggregate(context, job).mixing == first.mixing and context.open_store().holds(first.mixing)


def test_scores_of_many_clients_are_kept_sparse(tmp_path):
    """N x k weights a layer, in memory and on disk."""
    count, k = 300, 5
    context = make_context(tmp_path)
    draws = torch.Generator().manual_seed(0)
    state = random_state(0)
    updates = [
        put_update(context, f"c{i:03d}", state | {"fc.weight": torch.randn(3, 4, generator=draws)})
        for i in range(count)
    ]
    made = aggregate(context, AggregationJob(AggregatorSpec(SCRAP, {"top_k": k}), tuple(updates)))
    assert context.open_store().get_state(made.mixing)["weights/0"].numel() == count * k
    assert len(made.weights) == count + 1 and math.fsum(made.weights["client/c007"].values()) == pytest.approx(1)
    store = context.open_store()
    files = [StateFile(Path(store.path(update.model.uri))) for update in updates]
    received = Received(updates, [1 / count] * count, read_schema(context), {}, files, None)
    rows = LayerAttention(Settings(top_k=k)).rows(received, ["fc.weight"])
    assert all(isinstance(row, SparseRow) and len(row.weights) == k for row in rows)
