"""The learning rate of a round, and how it rises at the start of a training (docs/training.md)."""

import math
from typing import TYPE_CHECKING

from models.errors import UserError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from tasks.core.train_settings import ScheduleSettings, TrainSettings


def cosine(done: float, floor: float) -> float:
    """Return floor + (1 - floor) (1 + cos(pi done)) / 2: SGDR's eq 5 (Loshchilov & Hutter, ICLR 2017), one period.

    Args:
        done: Share of the period that is over; 1 and more give the floor.
        floor: Lowest value; the highest is 1.
    """
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def rise(step: int, length: int) -> float:
    """Return min(1, step / length): a linear warm-up that is complete with step ``length``; steps count from 1."""
    return min(1.0, step / length) if length else 1.0


def schedule_factor(schedule: "ScheduleSettings", round_: int) -> float:
    """Return the factor of the learning rate in a round, from 0 to 1; rounds count from 1."""
    if schedule.name == "step":
        return float(schedule.gamma ** sum(round_ >= milestone for milestone in schedule.milestones))
    if schedule.name == "exponential":
        return float(schedule.gamma ** (round_ - 1))
    before = schedule.warmup_rounds if schedule.name == "warmup" else 0
    if before and round_ <= before:
        return rise(round_, before)
    if schedule.uses_cosine:
        assert schedule.rounds is not None, "checked with the settings"
        return cosine((round_ - 1 - before) / (schedule.rounds - before), schedule.floor)
    return 1.0


def learning_rate(settings: "TrainSettings", round_: int) -> float:
    """Return the learning rate of a round, before the warm-up by steps.

    A factor that both parts of the network share is in it; different ones are not.

    Raises:
        UserError: If the rate has come down to zero.
    """
    rate = settings.lr * schedule_factor(settings.schedule, round_)
    rate *= 1.0 if settings.group_lr.differ else settings.group_lr.head
    if rate <= 0:
        raise UserError(
            f"the learning rate of round {round_} is zero",
            where="train.schedule",
            expected=f"at most {settings.schedule.rounds} rounds, or a floor above 0",
            hint="set train.schedule.rounds or train.schedule.floor higher, which makes another run",
        )
    return rate


def make_optimiser(model: "nn.Module", settings: "TrainSettings", round_: int) -> "Optimizer":
    """Return a fresh optimiser over the parameters with gradients, at the learning rate of the round.

    With different factors in ``group_lr``, the network's parts are parameter groups of their own.
    """
    import torch

    from models.weights.parts import parameter_groups

    rate = learning_rate(settings, round_)
    factors = settings.group_lr.model_dump()
    if not settings.group_lr.differ:
        groups = [{"params": [value for value in model.parameters() if value.requires_grad]}]
    else:
        parts = parameter_groups(model)
        groups = [
            {"params": [model.get_parameter(name) for name in names], "lr": rate * factors[part]}
            for part, names in parts.items()
            if names
        ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, rate, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, rate, weight_decay=settings.weight_decay)


def warm_up(optimiser: "Optimizer", settings: "TrainSettings") -> "LRScheduler | None":
    """Return the scheduler to step after each step of the optimiser; ``None`` if the rate stays as it is."""
    from torch.optim.lr_scheduler import LambdaLR

    if not settings.warmup_steps:
        return None
    return LambdaLR(optimiser, lambda done: rise(done + 1, settings.warmup_steps))
