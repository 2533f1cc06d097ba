"""The task ``aggregate`` on every kind of tensor: ranges, types, one client, equal models."""

from pathlib import Path

import pytest
import torch

from tasks.core.state_stream import ALIGNED, StateFile
from tasks.server.aggregate import aggregate
from tasks.server.aggregation_job import AggregationJob
from tasks.server.aggregators import AGGREGATORS, AggregatorSpec
from tests.support.updates import make_context, put_start, put_update, random_state

MEAN = AggregatorSpec()


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def three(context):
    return tuple(put_update(context, client, random_state(seed), 10) for seed, client in enumerate("abc"))


@pytest.mark.parametrize("name", ["mean", "median", "geometric_median", "krum", "fedadam"])
def test_never_more_than_a_range_of_each_update_is_read(context, monkeypatch, name):
    monkeypatch.setattr("tasks.server.aggregators.received.BLOCK", 5 * ALIGNED)
    monkeypatch.setattr("tasks.server.aggregate.IN_CACHE", ALIGNED)  # of the mean, which has one of them at a time
    read, longest = StateFile.read, []

    def spy(file, tensor, start=0, stop=None):
        longest.append((stop or file.entries[tensor].numel) - start)
        return read(file, tensor, start, stop)

    monkeypatch.setattr(StateFile, "read", spy)
    shape = (70, 257)
    updates = tuple(put_update(context, client, random_state(ord(client), shape)) for client in "abcde")
    aggregate(context, AggregationJob(AggregatorSpec(name), updates, put_start(context, random_state(9, shape))))
    assert max(longest) == ALIGNED < 70 * 257


def test_equal_headers_are_held_once(context):
    store, updates = context.open_store(), three(context)
    files = [StateFile(Path(store.path(update.model.uri))) for update in updates]
    assert files[1].entries is not files[0].entries
    assert files[1].like(files[0]).entries is files[0].entries
    odd = put_update(context, "d", random_state(4) | {"fc.bias": torch.ones(5)})
    other = StateFile(Path(store.path(odd.model.uri)))
    assert other.like(files[0]).entries["fc.bias"].shape == (5,)


@pytest.mark.parametrize("policy", ["avg", "local", "frozen", "total_variance"])
def test_equal_models_give_the_same_model_whatever_the_weights(tmp_path, policy):
    context, state = make_context(tmp_path, policy), random_state(5)
    updates = tuple(put_update(context, client, state, size) for client, size in zip("abc", (3, 17, 80), strict=True))
    made = context.open_store().get_state(aggregate(context, AggregationJob(MEAN, updates)).models["global"])
    for name, value in made.items():
        assert value.dtype == state[name].dtype
        assert torch.allclose(value, state[name], rtol=1e-6, atol=1e-6 * (policy == "total_variance"))
    assert torch.equal(made["fc.weight"], state["fc.weight"])


def test_half_precision_states_keep_their_type_with_every_rule(context):
    half = {name: value.bfloat16() if value.is_floating_point() else value for name, value in random_state(5).items()}
    updates, start = tuple(put_update(context, client, half) for client in "abcde"), put_start(context, half)
    for name in AGGREGATORS:
        made = aggregate(context, AggregationJob(AggregatorSpec(name), updates, start))
        state = context.open_store().get_state(made.models["global"])
        assert {key: value.dtype for key, value in state.items()} == {key: value.dtype for key, value in half.items()}


def test_the_average_of_one_client_is_its_model(context):
    (update, *_) = three(context)
    assert aggregate(context, AggregationJob(MEAN, (update,))).models["global"].digest == update.model.digest
