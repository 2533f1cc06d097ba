"""Learning rates by round, by part of the network, and at the start of a training."""

import math

import pytest
import torch
from pydantic import ValidationError

from models.build import new_model
from models.errors import UserError
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from tasks.client.schedule import cosine, learning_rate, make_optimiser, rise, schedule_factor, warm_up
from tasks.core.train_settings import ScheduleSettings, TrainSettings


def rates(last, **schedule):
    settings = TrainSettings(lr=0.1, schedule=schedule)
    return [learning_rate(settings, number) for number in range(1, last + 1)]


def torch_rates(make, rounds):
    """The rates of one of torch's own schedulers, an independent statement of the formula."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    scheduler, out = make(optimiser), []
    for _ in range(rounds):
        out.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return out


def test_constant_is_the_rate_itself():
    assert rates(3) == [0.1, 0.1, 0.1]


def test_step_follows_torchs_multistep():
    from torch.optim.lr_scheduler import MultiStepLR

    assert rates(6, name="step", milestones=[3, 5], gamma=0.5) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025])
    expected = torch_rates(lambda optimiser: MultiStepLR(optimiser, [2, 4], 0.5), 6)  # epochs there count from 0
    assert rates(6, name="step", milestones=[3, 5], gamma=0.5) == pytest.approx(expected)


def test_exponential_follows_torchs():
    from torch.optim.lr_scheduler import ExponentialLR

    expected = torch_rates(lambda optimiser: ExponentialLR(optimiser, 0.998), 50)
    assert rates(50, name="exponential", gamma=0.998) == pytest.approx(expected)
    assert rates(3, name="exponential", gamma=0.5) == pytest.approx([0.1, 0.05, 0.025])
    assert rates(3, name="exponential", gamma=1.0) == rates(3)


def test_cosine_follows_torchs_and_stays_at_its_floor():
    from torch.optim.lr_scheduler import CosineAnnealingLR

    expected = torch_rates(lambda optimiser: CosineAnnealingLR(optimiser, 8, eta_min=0.02), 8)
    assert rates(8, name="cosine", rounds=8, floor=0.2) == pytest.approx(expected)
    assert rates(10, name="cosine", rounds=8, floor=0.2)[8:] == pytest.approx([0.02, 0.02])
    assert cosine(0, 0.2) == 1 and cosine(0.5, 0.2) == pytest.approx(0.6) and cosine(3, 0.2) == pytest.approx(0.2)


def test_warmup_rises_linearly_then_the_schedule_follows():
    assert rates(6, name="warmup", warmup_rounds=4) == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    found = rates(6, name="warmup", warmup_rounds=2, after="cosine", rounds=6)[2:6]
    assert found == pytest.approx([0.1 * (1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)])


def test_a_rate_of_zero_is_refused_and_names_the_setting():
    settings = TrainSettings(schedule={"name": "cosine", "rounds": 4})
    assert learning_rate(settings, 4) > 0
    with pytest.raises(UserError, match="learning rate of round 5 is zero") as caught:
        learning_rate(settings, 5)
    assert "train.schedule" in str(caught.value) and "floor" in str(caught.value)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"name": "step"}, "step needs milestones"),
        ({"name": "step", "milestones": [5, 3]}, "ascending"),
        ({"name": "step", "milestones": [3, 3]}, "ascending"),
        ({"name": "cosine"}, "train.schedule.rounds"),
        ({"name": "warmup", "after": "cosine"}, "train.schedule.rounds"),
        ({"name": "warmup", "after": "cosine", "warmup_rounds": 5, "rounds": 5}, "leave no round"),
        ({"milestones": [3]}, "milestones is .*the schedule constant does not use it; leave it at"),
        ({"name": "step", "milestones": [3], "rounds": 9}, "rounds is 9, but the schedule step does not use it"),
        ({"name": "exponential", "milestones": [3]}, "milestones is .*the schedule exponential does not use it"),
        ({"name": "warmup", "gamma": 0.5}, "gamma is 0.5, but the schedule warmup"),
        ({"name": "warmup", "floor": 0.1}, "floor is 0.1, but the schedule warmup"),
        ({"name": "cosine", "rounds": 9, "after": "cosine"}, "after is cosine, but the schedule cosine"),
    ],
)
def test_schedules_without_sense_are_refused(schedule, message):
    with pytest.raises(ValidationError, match=message):
        ScheduleSettings.model_validate(schedule)


def test_factors_never_leave_zero_to_one():
    for values in (
        {"name": "cosine", "rounds": 7},
        {"name": "warmup"},
        {"name": "step", "milestones": [2]},
        {"name": "exponential", "gamma": 0.9},
    ):
        schedule = ScheduleSettings.model_validate(values)
        assert all(0 <= schedule_factor(schedule, number) <= 1 for number in range(1, 40))


def network():
    spec = ModelSpec(("a", "b"), 32)
    return new_model(ModelSettings(name="resnet18", backbone={"width": 0.125}), spec, seed=0)


def test_parts_of_the_network_train_at_their_own_rates():
    model = network()
    settings = TrainSettings(lr=0.1, group_lr={"backbone": 0.1}, schedule={"name": "step", "milestones": [2]})
    optimiser = make_optimiser(model, settings, 2)
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([0.001, 0.01])
    head = {id(p) for p in optimiser.param_groups[1]["params"]}
    assert {id(p) for p in model.readout.parameters()} <= head
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(list(model.parameters()))


def test_equal_factors_are_one_group_of_the_scaled_rate():
    settings = TrainSettings(lr=0.1, group_lr={"backbone": 0.5, "head": 0.5})
    (group,) = make_optimiser(network(), settings, 1).param_groups
    assert group["lr"] == learning_rate(settings, 1) == pytest.approx(0.05), "SCAFFOLD divides by the rate of the steps"
    (group,) = make_optimiser(network(), TrainSettings(lr=0.1), 1).param_groups
    assert group["lr"] == 0.1


def test_optimiser_follows_the_settings_and_skips_frozen_parameters():
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    sgd = make_optimiser(model, TrainSettings(optimizer="sgd", momentum=0.5, lr=0.2, weight_decay=0.1), 1)
    assert type(sgd) is torch.optim.SGD
    assert [sgd.param_groups[0][key] for key in ("lr", "momentum", "weight_decay")] == [0.2, 0.5, 0.1]
    assert [p.shape for p in sgd.param_groups[0]["params"]] == [(2, 2)]
    assert type(make_optimiser(model, TrainSettings(optimizer="adamw"), 1)) is torch.optim.AdamW
    assert type(make_optimiser(model, TrainSettings(), 1)) is torch.optim.Adam


def test_warmup_steps_rise_over_the_first_steps_in_every_group():
    settings = TrainSettings(optimizer="sgd", lr=0.1, group_lr={"backbone": 0.1}, warmup_steps=4)
    optimiser = make_optimiser(network(), settings, 1)
    scheduler, found = warm_up(optimiser, settings), []
    for _ in range(6):
        found.append([group["lr"] for group in optimiser.param_groups])
        optimiser.step()
        scheduler.step()
    steps = [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert found == [pytest.approx([0.01 * share, 0.1 * share]) for share in steps]
    assert [rise(step, 4) for step in range(1, 7)] == steps


def test_without_warmup_steps_there_is_nothing_to_step():
    optimiser = make_optimiser(network(), TrainSettings(), 1)
    assert warm_up(optimiser, TrainSettings()) is None and rise(1, 0) == 1.0
