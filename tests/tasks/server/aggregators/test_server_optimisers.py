"""Server optimisers: steps by hand, their neutral cases, what they keep from round to round."""

import dataclasses
import math

import pytest
import torch

from models.errors import UserError
from tasks.server.aggregate import AggregationJob, aggregate
from tasks.server.aggregators import AggregatorSpec
from tasks.server.aggregators.adaptive import adaptive_step
from tasks.server.aggregators.ema import moving_average
from tasks.server.aggregators.fedadagrad import summed
from tasks.server.aggregators.fedadam import decayed
from tasks.server.aggregators.fedavgm import momentum_step
from tasks.server.aggregators.fedyogi import controlled
from tests.support.updates import SCHEMA, make_context, put_start, put_update, random_state

ADAPTIVE = ("fedadagrad", "fedadam", "fedyogi")
BUFFERS = [name for name, spec in SCHEMA.items() if spec.kind != "parameter"]


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def job(context, name, **values):
    updates = tuple(
        put_update(context, client, random_state(seed), 10 * seed + 10) for seed, client in enumerate("abc")
    )
    return AggregationJob(AggregatorSpec(name, values), updates, put_start(context, random_state(9)))


def state_of(context, made, name="global"):
    return context.open_store().get_state(made.models[name])


def test_momentum_by_hand():
    # x = 1, mean = 3, so the change is 2; v' = 0.5 * 4 + 2 = 4, x' = 1 + 0.1 * 4
    new, velocity = momentum_step(numbers(1), numbers(3), numbers(4), lr=0.1, momentum=0.5)
    assert velocity.tolist() == [4.0] and new.tolist() == pytest.approx([1.4])


def test_momentum_is_torchs_sgd_on_the_negative_change():
    value = torch.nn.Parameter(numbers(0.3, -2.0))
    sgd, velocity = torch.optim.SGD([value], lr=0.7, momentum=0.9), numbers(0, 0)
    x = value.detach().clone()
    for change in (numbers(1.0, 2.0), numbers(-0.5, 0.1), numbers(0.0, 3.0)):
        value.grad = -change
        sgd.step()
        x, velocity = momentum_step(x, x + change, velocity, 0.7, 0.9)
        assert torch.allclose(x, value.detach(), atol=1e-12)


def test_second_moments_by_hand():
    v, change = numbers(4.0, 1.0), numbers(1.0, 3.0)  # the squares are 1 and 9
    assert summed(v, change).tolist() == [5.0, 10.0]
    assert decayed(v, change, 0.75).tolist() == [0.75 * 4 + 0.25, 0.75 + 0.25 * 9]
    # v above the square goes down by a share of the square, below it goes up by one
    assert controlled(v, change, 0.75).tolist() == [4 - 0.25 * 1, 1 + 0.25 * 9]
    assert controlled(v, v.sqrt(), 0.75).tolist() == v.tolist()


def test_the_adaptive_step_by_hand():
    assert adaptive_step(numbers(1), numbers(6), numbers(4), lr=0.1, tau=1.0).tolist() == pytest.approx([1 + 0.6 / 3])


def by_the_paper(name, x, changes, lr, b1, b2, tau):
    """Algorithm 2 of Reddi et al. for one number, written out again."""
    m, v = 0.0, tau**2
    for d in changes:
        m = b1 * m + (1 - b1) * d
        if name == "fedadagrad":
            v = v + d * d
        elif name == "fedadam":
            v = b2 * v + (1 - b2) * d * d
        else:
            v = v - (1 - b2) * d * d * math.copysign(1, v - d * d)
        x = x + lr * m / (math.sqrt(v) + tau)
    return x, m, v


@pytest.mark.parametrize("name", ADAPTIVE)
def test_three_rounds_against_the_paper_for_single_numbers(context, name):
    lr, b1, b2, tau = 0.3, 0.6, 0.8, 0.05
    values = {"lr": lr, "beta1": b1, "tau": tau} | ({} if name == "fedadagrad" else {"beta2": b2})
    first, x0, changes, store = job(context, name, **values), random_state(9), [], context.open_store()
    start, kept = first.start, None
    mean = state_of(context, aggregate(context, dataclasses.replace(first, spec=AggregatorSpec("mean"))))
    for _ in range(3):
        changes.append((mean["fc.bias"].double() - store.get_state(start)["fc.bias"].double()).tolist())
        made = aggregate(context, dataclasses.replace(first, start=start, state=kept))
        start, kept = made.models["global"], made.state
    state, own = store.get_state(start), store.get_state(kept)
    assert set(own) == {f"{slot}/{n}" for slot in ("first_moment", "second_moment") for n in ("fc.weight", "fc.bias")}
    for k in range(3):
        steps = [change[k] for change in changes]
        x, m, v = by_the_paper(name, float(x0["fc.bias"][k]), steps, lr, b1, b2, tau)
        assert state["fc.bias"][k].item() == pytest.approx(x, rel=1e-5)
        assert own["first_moment/fc.bias"][k].item() == pytest.approx(m, rel=1e-4, abs=1e-7)
        assert own["second_moment/fc.bias"][k].item() == pytest.approx(v, rel=1e-4)
    assert all(torch.equal(state[name], mean[name]) for name in BUFFERS), "buffers are averaged"


def test_fedavgm_without_momentum_and_with_rate_1_is_the_mean_bit_for_bit(context):
    plain = job(context, "fedavgm", lr=1.0, momentum=0.0)
    made = aggregate(context, plain)
    mean = aggregate(context, dataclasses.replace(plain, spec=AggregatorSpec("mean")))
    assert made.models["global"].digest == mean.models["global"].digest and made.weights == mean.weights
    again = aggregate(context, dataclasses.replace(plain, state=made.state))
    assert again.models["global"].digest == mean.models["global"].digest


@pytest.mark.parametrize("name", ADAPTIVE)
def test_with_a_large_tau_and_an_equal_rate_an_adaptive_server_is_the_mean(context, name):
    slow = {} if name == "fedadagrad" else {"beta2": 1 - 1e-12}
    plain = job(context, name, lr=1e9, tau=1e9, beta1=0.0, **slow)
    made = state_of(context, aggregate(context, plain))
    mean = state_of(context, aggregate(context, dataclasses.replace(plain, spec=AggregatorSpec("mean"))))
    for tensor, value in mean.items():
        # sqrt(v) begins at tau and halves the step
        begun = random_state(9)[tensor]
        expected = begun + (value - begun) / 2 if SCHEMA[tensor].kind == "parameter" else value
        assert torch.allclose(made[tensor], expected, atol=1e-6), tensor


@pytest.mark.parametrize("name", ["fedavgm", *ADAPTIVE])
def test_a_server_optimiser_needs_the_start_model(context, name):
    with pytest.raises(UserError, match="needs the model that clients started from"):
        aggregate(context, dataclasses.replace(job(context, name), start=None))


def test_the_moving_average_by_hand():
    assert moving_average(None, numbers(4), 0.75).tolist() == [4.0]
    assert moving_average(numbers(8), numbers(4), 0.75).tolist() == [7.0]
    assert moving_average(numbers(8), numbers(4), 0.0).tolist() == [4.0]


def test_clients_go_on_from_the_mean_and_the_moving_average_is_evaluated(context):
    first = job(context, "ema", decay=0.75)
    made = aggregate(context, first)
    mean = aggregate(context, dataclasses.replace(first, spec=AggregatorSpec("mean")))
    assert made.evaluated == "ema" and mean.evaluated == "global"
    assert made.models["global"].digest == made.models["ema"].digest == mean.models["global"].digest
    fewer = dataclasses.replace(first, updates=first.updates[:1], state=made.state)
    second = aggregate(context, fewer)
    a, before = context.open_store().get_state(first.updates[0].model), state_of(context, mean)
    assert second.models["global"].digest == first.updates[0].model.digest
    average = state_of(context, second, "ema")
    for name, value in average.items():
        if value.is_floating_point():
            assert torch.allclose(value, 0.75 * before[name] + 0.25 * a[name], atol=1e-6), name
    assert aggregate(context, fewer) == second, "found again with what is evaluated"
