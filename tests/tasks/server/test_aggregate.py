"""The task ``aggregate``: names, ranges, several models, layers, the aggregator's own state."""

import dataclasses
import sys
from types import ModuleType

import pytest
import torch

from models.errors import UserError
from models.settings.section import Section
from tasks.server import aggregate as module
from tasks.server.aggregate import AggregationJob, aggregate
from tasks.server.aggregation import sample_count_weights
from tasks.server.aggregators import Aggregator, AggregatorSpec, Combined, Mixing, load_aggregator
from tests.support.updates import make_context, put_start, put_update, random_state

MEAN = AggregatorSpec()
SIZES = (10, 30, 60)


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def three(context, shape=(3, 4)):
    states = [random_state(seed, shape) for seed in range(3)]
    return tuple(
        put_update(context, client, state, size) for client, state, size in zip("abc", states, SIZES, strict=True)
    )


@pytest.fixture
def own(monkeypatch):
    """``own(cls)``: the name of an aggregator that is a module of its own."""

    def register(cls):
        name = f"tests.made.{cls.__name__}"
        made = ModuleType(name)
        made.Settings, made.make = type("Settings", (Section,), {}), lambda settings: cls()
        monkeypatch.setitem(sys.modules, name, made)
        return AggregatorSpec(name)

    return register


def whole_mean(states, weights, policy):
    """The mean of whole states, written out again: float64 in client order, the maximum of integers."""
    out = {}
    for name, first in states[0].items():
        values = [state[name] for state in states]
        if not first.is_floating_point():
            out[name] = torch.stack(values).amax(0)
            continue
        total, second, mean = (torch.zeros(first.shape, dtype=torch.float64) for _ in range(3))
        for state, value, weight in zip(states, values, weights, strict=True):
            total.add_(value.double(), alpha=weight)
            if policy == "total_variance" and name == "bn.running_var":
                m = state["bn.running_mean"].double()
                mean.add_(m, alpha=weight)
                second.add_(value.double() + m.square(), alpha=weight)
        pooled = policy == "total_variance" and name == "bn.running_var"
        out[name] = ((second - mean.square()).clamp(min=0) if pooled else total).to(first.dtype)
    return out


@pytest.mark.parametrize("policy", ["avg", "total_variance"])
@pytest.mark.parametrize("shape", [(3, 4), (70, 257)])
@pytest.mark.parametrize("block", [1, 1 << 23])
def test_the_mean_is_bit_for_bit_that_of_whole_states(tmp_path, monkeypatch, policy, shape, block):
    monkeypatch.setattr("tasks.server.aggregators.received.BLOCK", block)
    context = make_context(tmp_path, policy)
    updates, store = three(context, shape), context.open_store()
    made = aggregate(context, AggregationJob(MEAN, updates))
    weights = sample_count_weights(SIZES)
    expected = whole_mean([store.get_state(update.model) for update in updates], weights, policy)
    assert list(made.models) == ["global"] and made.state is None
    assert made.weights == {"global": dict(zip("abc", weights, strict=True))}
    state = store.get_state(made.models["global"])
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], value) and state[name].dtype == value.dtype for name, value in expected.items())
    assert made.models["global"].bytes == store.put_state("x.safetensors", expected).bytes


def test_a_result_is_found_again_and_a_damaged_one_made_again(context):
    updates, store = three(context), context.open_store()
    job = AggregationJob(MEAN, updates)
    first = aggregate(context, job)
    store.delete("updates/a.safetensors")  # were it computed again, this would be missed
    assert aggregate(context, job) == first
    moved = dataclasses.replace(updates[0], model=dataclasses.replace(updates[0].model, uri="else"), seconds=9.0)
    assert aggregate(context, dataclasses.replace(job, updates=(moved, *updates[1:]))) == first
    put_update(context, "a", random_state(0), SIZES[0])
    store.write_bytes(first.models["global"].uri, b"damaged")
    assert aggregate(context, job) == first and store.holds(first.models["global"])
    (record,) = [name for name in store.names("updates") if name.endswith(".json")]
    store.write_json(f"updates/{record}", {"models": 3})
    assert aggregate(context, job) == first


def test_any_other_input_is_another_result(context):
    updates, start = three(context), put_start(context, random_state(9))
    base = AggregationJob(MEAN, updates, start)
    others = [
        base,
        dataclasses.replace(base, updates=updates[:2]),
        dataclasses.replace(base, updates=(dataclasses.replace(updates[0], steps=5), *updates[1:])),
        dataclasses.replace(base, start=None),
        dataclasses.replace(base, weights=(0.2, 0.3, 0.5)),
        dataclasses.replace(base, rows={"global": (0.2, 0.3, 0.5)}),
        dataclasses.replace(base, facts={"lr": 0.1}),
        dataclasses.replace(base, state=start),
        dataclasses.replace(base, spec=AggregatorSpec("tasks.server.aggregators.mean")),
    ]
    assert len({job.output_name("run") for job in others} | {base.output_name("other")}) == len(others) + 1


def test_the_order_of_the_updates_changes_nothing(context):
    updates = three(context)
    job = AggregationJob(MEAN, updates, weights=(0.2, 0.3, 0.5))
    back = AggregationJob(MEAN, updates[::-1], weights=(0.5, 0.3, 0.2))
    assert aggregate(context, job) == aggregate(context, back)
    assert job.in_client_order() == back.in_client_order()


def test_explicit_rows_make_several_models_and_a_zero_is_not_read(context):
    updates, store = three(context), context.open_store()
    rows = {"cluster/0": (0.25, 0.75, 0.0), "cluster/1": (0.0, 0.0, 1.0)}
    made = aggregate(context, AggregationJob(MEAN, updates, rows=rows))
    assert list(made.models) == ["cluster/0", "cluster/1"]
    assert made.weights == {"cluster/0": {"a": 0.25, "b": 0.75}, "cluster/1": {"c": 1.0}}
    a, b, c = (store.get_state(update.model) for update in updates)
    assert made.models["cluster/1"].digest == updates[2].model.digest
    mixed = store.get_state(made.models["cluster/0"])
    assert torch.equal(mixed["fc.weight"], (0.25 * a["fc.weight"].double() + 0.75 * b["fc.weight"].double()).float())
    assert mixed["bn.num_batches_tracked"] == 1, "the maximum of those that count"
    assert c["bn.num_batches_tracked"] == 2


def test_a_dense_mixing_is_a_matrix_product(context, monkeypatch):
    updates, store = three(context), context.open_store()
    rows = torch.rand(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = (rows / rows.sum(1, keepdim=True)).tolist()
    job = AggregationJob(MEAN, updates, rows={f"client/{k}": tuple(row) for k, row in enumerate(rows)})
    slow = aggregate(context, job)
    monkeypatch.setattr(module, "DENSE", 1)
    store.delete("updates")
    fast = aggregate(context, dataclasses.replace(job, updates=three(context)))
    for name in slow.models:
        one, other = store.get_state(fast.models[name]), fast.weights[name]
        assert other == slow.weights[name]
        states = [store.get_state(update.model) for update in updates]
        for tensor, value in one.items():
            if value.is_floating_point():
                expected = sum(w * s[tensor].double() for w, s in zip(other.values(), states, strict=True))
                assert torch.allclose(value.double(), expected, atol=1e-6), (name, tensor)


class Layered(Aggregator):
    def weigh(self, received):
        layers = {"fc.": [(0.0, 1.0, 0.0)], "fc.bias": [(0.0, 0.0, 1.0)]}
        return Mixing(("global",), (received.weights,), layers)


def test_layers_have_their_own_weights_and_the_longest_prefix_wins(context, own):
    updates, store = three(context), context.open_store()
    state = store.get_state(aggregate(context, AggregationJob(own(Layered), updates)).models["global"])
    mean = store.get_state(aggregate(context, AggregationJob(MEAN, updates)).models["global"])
    assert torch.equal(state["fc.weight"], store.get_state(updates[1].model)["fc.weight"])
    assert torch.equal(state["fc.bias"], store.get_state(updates[2].model)["fc.bias"])
    assert torch.equal(state["bn.running_mean"], mean["bn.running_mean"])


class Counting(Aggregator):
    """Adds a number of its own that grows by one a round, at parameters."""

    def combine(self, tensor):
        mean = self.average(tensor)
        if tensor.spec.kind != "parameter":
            return Combined(mean)
        assert tensor.start is not None
        before = tensor.before.get("count", torch.zeros_like(mean))
        return Combined(mean + before, {"count": before + 1, "": torch.ones_like(mean).float()})


@pytest.mark.parametrize("output", ["global", "cluster/0"])
def test_an_aggregators_own_tensors_are_stored_and_come_back(context, own, output, monkeypatch):
    monkeypatch.setattr("tasks.server.aggregators.received.BLOCK", 1)
    shape, spec, store = (70, 257), own(Counting), context.open_store()
    updates, start = three(context, shape), put_start(context, random_state(9, shape))
    job = AggregationJob(spec, updates, start, rows={output: (0.2, 0.3, 0.5)})
    first = aggregate(context, job)
    prefix = "" if output == "global" else "cluster/0/"
    kept = store.get_state(first.state)
    assert set(kept) == {f"{prefix}{slot}fc.{name}" for slot in ("count/", "") for name in ("weight", "bias")}
    count = kept[f"{prefix}count/fc.weight"]
    assert (count == 1).all() and count.shape == shape and count.dtype == torch.float64
    second = aggregate(context, dataclasses.replace(job, state=first.state))
    assert (store.get_state(second.state)[f"{prefix}count/fc.bias"] == 2).all()
    one, two = (store.get_state(made.models[output])["fc.weight"] for made in (first, second))
    assert torch.allclose(two, one + 1, atol=1e-6)


class Whole(Aggregator):
    elementwise = False

    def combine(self, tensor):
        shapes = {"fc.weight": (70, 257), "fc.bias": (3,), "bn.running_mean": (3,), "bn.running_var": (3,)}
        assert all(value.shape == shapes[tensor.name] for value in (*tensor.values, tensor.start))
        return Combined(tensor.values[0] / tensor.values[0].norm())


def test_an_aggregator_that_is_not_elementwise_gets_whole_tensors(context, own, monkeypatch):
    monkeypatch.setattr("tasks.server.aggregators.received.BLOCK", 1)
    updates, start = three(context, (70, 257)), put_start(context, random_state(9, (70, 257)))
    state = context.open_store().get_state(
        aggregate(context, AggregationJob(own(Whole), updates, start)).models["global"]
    )
    assert state["fc.weight"].shape == (70, 257) and state["fc.weight"].norm().item() == pytest.approx(1)


class Infinite(Aggregator):
    def combine(self, tensor):
        return Combined(tensor.values[0] / 0)


class Short(Aggregator):
    def weigh(self, received):
        return Mixing(("global",), ((1.0,),))


def test_unusable_results_and_weights_are_refused(context, own):
    updates = three(context)
    with pytest.raises(UserError, match="not finite") as error:
        aggregate(context, AggregationJob(own(Infinite), updates))
    assert "bn.running_mean" in str(error.value)
    with pytest.raises(UserError, match="do not fit the updates"):
        aggregate(context, AggregationJob(own(Short), updates))
    for weights in ((0.5, 0.5, 0.5), (1.5, -0.5, 0.0)):
        with pytest.raises(UserError, match="must sum to 1"):
            aggregate(context, AggregationJob(MEAN, updates, weights=weights))
        with pytest.raises(UserError, match="must sum to 1"):
            aggregate(context, AggregationJob(MEAN, updates, rows={"global": weights}))
    with pytest.raises(UserError, match="no update"):
        aggregate(context, AggregationJob(MEAN, ()))
    assert not [name for name in context.open_store().names("updates") if "aggregated" in name]


@pytest.mark.parametrize(
    "other", [{"fc.bias": torch.ones(4)}, {"fc.bias": torch.ones(3).double()}, {"more": torch.ones(1)}]
)
def test_models_with_different_tensors_are_refused(context, other):
    updates = three(context)
    odd = put_update(context, "d", random_state(4) | other)
    with pytest.raises(UserError, match="cannot be combined"):
        aggregate(context, AggregationJob(MEAN, (*updates, odd)))


def test_a_remote_store_works_as_a_folder_does(tmp_path):
    local, remote = make_context(tmp_path), make_context("memory://aggregate")
    one, other = (aggregate(context, AggregationJob(MEAN, three(context))) for context in (local, remote))
    assert one == other and remote.open_store().holds(other.models["global"])


def test_an_unknown_aggregator_is_refused():
    with pytest.raises(UserError, match="no such aggregator"):
        load_aggregator("average")
    assert load_aggregator("mean").DESCRIPTION
