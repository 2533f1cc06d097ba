"""The methods' own aggregators on states of a real network, bit for bit against their formulas written out again."""

import dataclasses
import math

import pytest
import torch

from tasks.core.records import Update
from tasks.core.state_schema import parameters_of, read_schema
from tasks.server.aggregate import AggregationJob, aggregate
from tasks.server.aggregators import AggregatorSpec
from tests.support.rounds import NARROW, PLAIN_SGD

SIZES, STEPS, ALL = (10, 30, 60), (2, 3, 9), {"a": 10, "b": 30, "c": 60, "d": 25}


@pytest.fixture
def trained(make_run):
    """A context, its start model and three trained states of a real network."""
    context, start = make_run(objective="bce", network=NARROW, train=PLAIN_SGD | {"momentum": 0.5})
    store = context.open_store()

    def state(seed):
        draws = torch.Generator().manual_seed(seed)
        return {
            name: value + torch.rand(value.shape, generator=draws) if value.is_floating_point() else value + seed
            for name, value in store.get_state(start).items()
        }

    refs = [store.put_state(f"made-{seed}.safetensors", state(seed)) for seed in range(3)]
    updates = tuple(
        Update(client, ref, samples, steps, {}, 0.1)
        for client, ref, samples, steps in zip("abc", refs, SIZES, STEPS, strict=True)
    )
    return context, start, updates


def mean_of(values, weights):
    """sum_i a_i v_i in float64, in client order."""
    total = torch.zeros(values[0].shape, dtype=torch.float64)
    for value, weight in zip(values, weights, strict=True):
        total.add_(value.double(), alpha=weight)
    return total


def check_model(context, start, updates, made, parameter):
    """Compare a model bit for bit: ``parameter(w, values)`` for parameters, the mean by sample count for buffers."""
    store, sizes = context.open_store(), [u.samples / sum(v.samples for v in updates) for u in updates]
    begun, states = store.get_state(start), [store.get_state(update.model) for update in updates]
    state, parameters = store.get_state(made.models["global"]), set(parameters_of(read_schema(context)))
    assert state.keys() == begun.keys() and parameters < state.keys()
    for name, w in begun.items():
        values = [other[name] for other in states]
        if name in parameters:
            expected = parameter(name, w, values)
        elif w.is_floating_point():
            expected = mean_of(values, sizes)
        else:
            expected = torch.stack(values).amax(0)
        assert torch.equal(state[name], expected.to(w.dtype)), name


def test_fednova_moves_by_its_coefficients_bit_for_bit(trained):
    context, start, updates = trained
    spec = AggregatorSpec("tasks.server.fednova", {"momentum": context.train.momentum})
    made = aggregate(context, AggregationJob(spec, updates, start))
    assert made.weights["global"] == {u.client: u.samples / 100 for u in updates} and made.state is None
    p = [size / 100 for size in SIZES]
    a = [(n - 0.5 * (1 - 0.5**n) / 0.5) / 0.5 for n in STEPS]
    f = [pi * math.fsum(pj * (aj / ai) for pj, aj in zip(p, a, strict=True)) for pi, ai in zip(p, a, strict=True)]
    check_model(context, start, updates, made, lambda _, w, values: mean_of([w, *values], [1.0 - math.fsum(f), *f]))


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_scaffold_moves_by_the_mean_change_and_keeps_c_bit_for_bit(trained, weighting):
    context, start, updates = trained
    spec, lr, store = AggregatorSpec("tasks.server.scaffold", {"weighting": weighting}), 0.07, context.open_store()
    job = AggregationJob(spec, updates, start, facts={"lr": lr, "sizes": ALL})
    sizes, begun, control = ALL if weighting == "size" else dict.fromkeys(ALL, 1), store.get_state(start), {}
    state = None
    for chosen in (updates, updates[1:]):
        made = aggregate(context, dataclasses.replace(job, updates=chosen, state=state))
        own = [sizes[u.client] for u in chosen]
        w_i, q_i = [s / sum(own) for s in own], [s / sum(sizes.values()) for s in own]
        assert made.weights["global"] == dict(zip([u.client for u in chosen], w_i, strict=True))
        check_model(
            context, start, chosen, made,
            lambda _, w, values, w_i=w_i: mean_of([w, *values], [1.0 - math.fsum(w_i), *w_i]),
        )  # fmt: skip
        kept = store.get_state(made.state)
        assert sorted(kept) == parameters_of(read_schema(context))
        for name, value in kept.items():
            before = control.get(name, torch.zeros_like(value)).double()
            c = before.clone()
            for update, q in zip(chosen, q_i, strict=True):
                trained_value = store.get_state(update.model)[name].double()
                c.add_((begun[name].double() - trained_value) / (update.steps * lr) - before, alpha=q)
            assert torch.equal(value, c.float()), name
        control, state = kept, made.state


def test_fedhybrid_subtracts_the_mean_dual_bit_for_bit(trained):
    context, start, updates = trained
    store, mu, n = context.open_store(), 0.5, 4
    begun, duals, state = store.get_state(start), {}, None
    job = AggregationJob(AggregatorSpec("tasks.server.fedhybrid", {"mu": mu}), updates, start, facts={"clients": n})
    for chosen in (updates, updates[:2]):
        made = aggregate(context, dataclasses.replace(job, updates=chosen, state=state))
        kept, k = store.get_state(made.state), len(chosen)
        assert sorted(kept) == parameters_of(read_schema(context))
        for name, value in kept.items():
            values = [store.get_state(update.model)[name] for update in chosen]
            change = mean_of([begun[name], *values], [float(k), *[-1.0] * k])
            before = duals.get(name, torch.zeros(value.shape, dtype=torch.float64))
            assert torch.equal(value, before + mu / n * change), name
        check_model(
            context, start, chosen, made,
            lambda name, _, values, kept=kept: mean_of(values, [1 / len(values)] * len(values)) - kept[name] / mu,
        )  # fmt: skip
        duals, state = kept, made.state
