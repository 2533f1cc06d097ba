"""FedNova: effective steps and its linear combination; with equal steps the contract suite holds it to FedAvg."""

import pytest
import torch

from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.records import Update
from tasks.core.state_schema import parameters_of, read_schema
from tasks.server.aggregate import aggregate
from tasks.server.aggregation import sample_count_weights
from tasks.server.aggregation_job import AggregationJob
from tasks.server.fednova import effective_steps, nova_coefficients
from tests.support.rounds import NARROW


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_effective_steps_equal_the_displacement_under_a_constant_gradient(steps, momentum):
    value = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([value], lr=1.0, momentum=momentum)
    for _ in range(steps):
        value.grad = torch.ones(1, dtype=torch.float64)
        sgd.step()
    assert effective_steps(steps, momentum) == pytest.approx(-float(value.detach()), rel=1e-12)


def test_coefficients_by_hand():
    # p = (1/4, 3/4), a = (2, 4): sum p a = 3.5, so the factors are 3.5 / 8 and 3.5 * 3 / 16.
    assert nova_coefficients([2, 4], [0.25, 0.75]) == pytest.approx([0.4375, 0.65625])
    assert nova_coefficients([3.5] * 3, [0.5, 0.25, 0.25]) == [0.5, 0.25, 0.25]


def stored(context, start, seed, steps):
    """A fabricated trained state: the start's parameters and statistics plus noise, ``steps`` batches counted."""
    generator, store = torch.Generator().manual_seed(seed), context.open_store()
    state = {
        name: value + torch.rand(value.shape, generator=generator) if value.is_floating_point() else value + steps
        for name, value in store.get_state(start).items()
    }
    return store.put_state(f"made-{seed}.safetensors", state), state


@pytest.mark.parametrize(("momentum", "optimizer"), [(0.0, "sgd"), (0.9, "sgd"), (0.0, "adam")])
def test_parameters_follow_the_formula_and_buffers_are_averaged(make_run, momentum, optimizer):
    context, start = make_run(train={"optimizer": optimizer, "momentum": momentum}, objective="bce", network=NARROW)
    steps, sizes = [2, 3, 9], [10, 30, 60]
    refs, states = zip(*[stored(context, start, seed, n) for seed, n in enumerate(steps)], strict=True)
    before, names = context.open_store().get_state(start), set(parameters_of(read_schema(context)))
    updates = tuple(
        Update(client, ref, size, n, {}, 0.1) for client, ref, size, n in zip("abc", refs, sizes, steps, strict=True)
    )
    spec = AggregatorSpec("tasks.server.fednova", {"momentum": momentum})
    made = aggregate(context, AggregationJob(spec, updates, start))
    after = context.open_store().get_state(made.models["global"])
    assert made.weights["global"] == {"a": 0.1, "b": 0.3, "c": 0.6} and made.state is None
    p, a = sample_count_weights(sizes), [effective_steps(n, momentum) for n in steps]
    tau = sum(pi * ai for pi, ai in zip(p, a, strict=True))
    assert (
        after.keys() == before.keys()
        and names < after.keys()
        and {"num_batches_tracked"}
        == {name.rsplit(".", 1)[1] for name, value in after.items() if not value.is_floating_point()}
    )
    for name, w in before.items():
        own = [state[name] for state in states]
        if name in names:
            moves = sum(pi * (w - v).double() / ai for pi, ai, v in zip(p, a, own, strict=True))
            expected = w.double() - tau * moves
        else:
            mean = sum(pi * v.double() for pi, v in zip(p, own, strict=True))
            expected = mean if w.is_floating_point() else torch.stack(own).amax(0).double()
        assert after[name].dtype == w.dtype and torch.allclose(after[name].double(), expected, atol=1e-5), name


def test_a_warm_up_within_a_training_is_refused():
    with pytest.raises(UserError, match=r"train.warmup_steps must be 0, found 4"):
        load_settings(None, ["tiny"], ["method.name=fednova", "train.warmup_steps=4"])
    load_settings(None, ["tiny"], ["method.name=fednova", "train.group_lr.backbone=0.1"])
