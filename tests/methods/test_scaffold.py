"""SCAFFOLD: its fixed point on quadratics, the server's step, and control variates of real training."""

import pytest
import torch
from torch import nn

from flows.settings.files import load_settings
from models.errors import UserError
from tasks.client.objectives import Loss
from tasks.client.regularisers import RegulariserContext
from tasks.client.regularisers.scaffold import Control
from tasks.core.state_schema import parameters_of, read_schema
from tasks.core.train_settings import TrainSettings
from tasks.server.scaffold import mean_gradient, new_control
from tests.support.rounds import NARROW, PLAIN_SGD, run_round, run_rounds

CLIENTS, LR = 4, 0.05


class Quadratic(nn.Module):
    """f(theta) = (theta - b)^T A (theta - b) / 2, with a buffer that nothing may correct."""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        root = torch.randn(3, 3, generator=generator, dtype=torch.float64)
        self.a, self.b = root @ root.T + torch.eye(3), 3 * torch.randn(3, generator=generator, dtype=torch.float64)
        self.theta = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(3, dtype=torch.float64))

    def loss(self):
        return 0.5 * (self.theta - self.b) @ self.a @ (self.theta - self.b)


def minimiser(clients, weights):
    a = sum(w * q.a for w, q in zip(weights, clients, strict=True))
    return torch.linalg.solve(a, sum(w * q.a @ q.b for w, q in zip(weights, clients, strict=True)))


def train(client, theta, steps, own, shared, corrected):
    """Local SGD from theta; returns theta_i and c_i_new, by the client's regulariser."""
    client.theta.data = theta.clone()
    regulariser = Control(
        RegulariserContext(client, (), {}, own, shared, TrainSettings(optimizer="sgd", lr=LR, grad_clip=None))
    )
    sgd = torch.optim.SGD(client.parameters(), LR)
    for _ in range(steps):
        sgd.zero_grad()
        loss = Loss(client.loss())
        (regulariser.change(loss, torch.zeros(1)) if corrected else loss).total.backward()
        sgd.step()
    return client.theta.detach().clone(), regulariser.finish(steps)


def run(sizes, together=CLIENTS, rounds=120, divisor=CLIENTS, corrected=True):
    """The method on quadratics through both parts; returns W and the gap of c."""
    clients = [Quadratic(seed) for seed in range(CLIENTS)]
    theta, c = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    own = [{} for _ in clients]
    lot = torch.Generator().manual_seed(1)
    for _ in range(rounds):
        chosen = sorted(torch.randperm(CLIENTS, generator=lot)[:together].tolist())
        steps = {k: 3 + k for k in chosen}  # clients of different sizes make different numbers of steps
        done = {k: train(clients[k], theta, steps[k], own[k], {"theta": c}, corrected) for k in chosen}
        gradients = [mean_gradient(theta, done[k][0], steps[k], LR) for k in chosen]
        shares = [sizes[k] / sum(sizes) * CLIENTS / divisor for k in chosen]
        weight = sum(sizes[k] for k in chosen)
        c = new_control(c, gradients, shares)
        theta = sum(sizes[k] / weight * done[k][0] for k in chosen)
        for k in chosen:
            own[k] = done[k][1]
    kept = sum(size / sum(sizes) * held.get("theta", torch.zeros(3)) for size, held in zip(sizes, own, strict=True))
    return theta, float((c - kept).abs().max()), minimiser(clients, sizes)


@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [10, 20, 30, 40]])
@pytest.mark.parametrize("together", [CLIENTS, CLIENTS // 2])
def test_the_weighted_minimiser_is_reached_with_all_and_with_half_of_the_clients(sizes, together):
    theta, gap, best = run(sizes, together, rounds=40 if together == CLIENTS else 120)
    assert torch.allclose(theta, best, atol=1e-8)
    assert gap < 1e-12  # the server's c is the mean of all clients' c_i, though it never sees one


def test_without_the_correction_or_with_the_wrong_number_of_clients_it_is_missed():
    theta, _, best = run([1, 1, 1, 1], corrected=False)
    assert float((theta - best).norm()) > 0.01
    _, gap, _ = run([1, 1, 1, 1], CLIENTS // 2, rounds=20, divisor=CLIENTS // 2)
    assert gap > 0.01


def test_the_correction_is_a_constant_in_the_gradient_of_parameters_only():
    client = Quadratic(3)
    own, shared = {"theta": torch.tensor([1.0, 2.0, 3.0])}, {"theta": torch.tensor([0.5, 0.5, 5.0])}
    regulariser = Control(RegulariserContext(client, (), {}, own, shared, TrainSettings(optimizer="sgd", lr=LR)))
    loss = Loss(client.loss(), {"classification": (torch.tensor(2.0), 1.0)})
    changed = regulariser.change(loss, torch.zeros(1))
    change = torch.autograd.grad(changed.total - loss.total, client.theta)[0]
    assert change.tolist() == [-0.5, -1.5, 2.0] and changed.sums is loss.sums
    client.theta.data -= LR * torch.tensor([4.0, 8.0, 12.0])  # as after four steps of the mean gradient (1, 2, 3)
    ((name, fresh),) = regulariser.finish(4).items()
    assert name == "theta" and fresh.tolist() == pytest.approx([1.0 + 0.5, 2.0 + 1.5, 3.0 - 2.0])


@pytest.fixture
def sgd_run(make_run):
    return make_run(objective="bce", network=NARROW, train=PLAIN_SGD)


def test_the_servers_c_is_the_mean_of_the_clients_control_variates(sgd_run, tiny_data):
    context, start = sgd_run
    store, rounds = context.open_store(), run_rounds(2, "scaffold", context, start, tiny_data.sizes)
    for fed in rounds:
        c, own = store.get_state(fed.record.state.server["scaffold"]), fed.record.state.private
        assert sorted(c) == parameters_of(read_schema(context))
        assert sorted(own) == list(tiny_data.ids)
        held = [store.get_state(own[client]) for client in tiny_data.ids]
        assert all(sorted(state) == [f"control/{name}" for name in sorted(c)] for state in held)
        assert max(float(value.abs().max()) for value in c.values()) > 1e-3
        for name, value in c.items():
            mean = torch.stack([state[f"control/{name}"] for state in held]).mean(0)
            assert torch.allclose(value, mean, atol=1e-5), name


@pytest.mark.slow
def test_both_sides_use_the_rate_of_the_round(make_run, tiny_data):
    """In round 2 the rate is a tenth; a side that used the first one would have a mean gradient ten times off."""
    schedule = {"schedule": {"name": "step", "milestones": [2], "gamma": 0.1}}
    context, start = make_run(objective="bce", network=NARROW, train=PLAIN_SGD | schedule)
    store, (first, fed) = context.open_store(), run_rounds(2, "scaffold", context, start, tiny_data.sizes)
    own = [store.get_state(fed.record.state.private[client]) for client in tiny_data.ids]
    for name, value in store.get_state(fed.record.state.server["scaffold"]).items():
        mean = torch.stack([state[f"control/{name}"] for state in own]).mean(0)
        assert torch.allclose(value, mean, atol=1e-5), name
    moved = [
        sum(
            float((store.get_state(after)[name] - store.get_state(before)[name]).norm())
            for name in parameters_of(read_schema(context))
        )
        for before, after in ((start, first.record.model), (first.record.model, fed.record.model))
    ]
    assert moved[1] < 0.3 * moved[0], "the second round takes smaller steps"


def test_c_travels_down_from_the_second_round_on_and_nothing_more_travels_up(sgd_run, tiny_data):
    context, start = sgd_run
    first, second = run_rounds(2, "scaffold", context, start, tiny_data.sizes)
    sent = context.open_store().get_state(first.record.state.server["scaffold"])
    assert first.record.stages[0].bytes_down == 4 * start.bytes
    assert second.record.stages[0].bytes_down == 4 * (start.bytes + sum(4 * v.numel() for v in sent.values()))
    assert second.record.stages[0].bytes_up == 4 * start.bytes


def test_absent_clients_keep_their_control_variate(sgd_run, tiny_data):
    context, start = sgd_run
    fed = run_round("scaffold", context, start, tiny_data.sizes, clients_per_round=2)
    store, states = context.open_store(), fed.record.state.private
    assert len(states) == 2
    for name, value in store.get_state(fed.record.state.server["scaffold"]).items():
        mean = sum(store.get_state(ref)[f"control/{name}"] for ref in states.values()) / 4
        assert torch.allclose(value, mean, atol=1e-6), name


def test_equal_sample_counts_give_equal_weights(sgd_run, tiny_data):
    uniform, size = (
        run_round("scaffold", *sgd_run, tiny_data.sizes, own={"weighting": weighting}).record.model.digest
        for weighting in ("uniform", "size")
    )
    assert uniform == size


@pytest.mark.parametrize(
    "train", [{"optimizer": "adam"}, PLAIN_SGD | {"momentum": 0.9}, PLAIN_SGD | {"grad_clip": 10.0}]
)
def test_anything_but_plain_sgd_is_refused_before_training(train):
    changes = [f"train.{key}={'null' if value is None else value}" for key, value in train.items()]
    with pytest.raises(UserError, match="plain SGD"):
        load_settings(None, ["tiny"], ["method.name=scaffold", *changes])
    load_settings(None, ["tiny", "scaffold"])


@pytest.mark.parametrize("setting", ["train.warmup_steps=3", "train.group_lr.backbone=0.1"])
def test_rates_that_differ_within_a_training_are_refused(setting):
    with pytest.raises(UserError, match="one learning rate for all steps and parameters"):
        load_settings(None, ["tiny", "scaffold"], [setting])
    load_settings(None, ["tiny", "scaffold"], ["train.schedule.name=step", "train.schedule.milestones=[2]"])
