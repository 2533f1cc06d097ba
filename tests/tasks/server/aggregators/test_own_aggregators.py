"""The methods' own aggregators give bit for bit what their former server steps gave."""

import dataclasses

import pytest
import torch

from tasks.core.records import Update
from tasks.server import fedhybrid, fednova, scaffold
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


def test_fednova(trained):
    context, start, updates = trained
    spec = AggregatorSpec("tasks.server.fednova", {"momentum": context.train.momentum})
    made = aggregate(context, AggregationJob(spec, updates, start))
    old = fednova.nova_average(context, [u.model for u in updates], SIZES, STEPS, start)
    assert made.models["global"].digest == old.digest and made.state is None
    assert made.weights["global"] == {u.client: u.samples / 100 for u in updates}


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_scaffold(trained, weighting):
    context, start, updates = trained
    spec = AggregatorSpec("tasks.server.scaffold", {"weighting": weighting})
    job = AggregationJob(spec, updates, start, facts={"lr": context.train.lr, "sizes": ALL})
    sizes = ALL if weighting == "size" else dict.fromkeys(ALL, 1)
    control = old_control = None
    for chosen in (updates, updates[1:]):
        made = aggregate(context, dataclasses.replace(job, updates=chosen, state=control))
        own = [sizes[u.client] for u in chosen]
        weights = [size / sum(own) for size in own]
        fractions = [size / sum(sizes.values()) for size in own]
        numbers = [u.samples for u in chosen], [u.steps for u in chosen]
        refs = [u.model for u in chosen]
        old, old_control = scaffold.control_step(context, refs, *numbers, start, old_control, weights, fractions)
        assert made.models["global"].digest == old.digest
        assert made.state.digest == old_control.digest
        assert made.weights["global"] == dict(zip([u.client for u in chosen], weights, strict=True))
        control = made.state


def test_fedhybrid(trained):
    context, start, updates = trained
    job = AggregationJob(AggregatorSpec("tasks.server.fedhybrid", {"mu": 0.5}), updates, start, facts={"clients": 4})
    duals = old_duals = None
    for chosen in (updates, updates[:2]):
        made = aggregate(context, dataclasses.replace(job, updates=chosen, state=duals))
        refs, sizes = [u.model for u in chosen], [u.samples for u in chosen]
        old, old_duals = fedhybrid.average_with_duals(context, refs, sizes, start, old_duals, 0.5, 4)
        assert made.models["global"].digest == old.digest and made.state.digest == old_duals.digest
        duals = made.state
