"""What a method adds to whatever loss the client minimises. A regulariser is a module here with ``TITLE`` and ``make``.

A new one is one module and one line in ``REGULARISERS``. A method names it as
``fed.train(..., regulariser=RegulariserSpec(name, values))``; the local loop passes
every batch's ``Loss`` to ``change`` and keeps what ``finish`` returns for the client's next training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasks.client.objectives import Loss, Reference
    from tasks.core.train_settings import TrainSettings

REGULARISERS: dict[str, str] = {
    "prox": "tasks.client.regularisers.fedprox",
    "moon": "tasks.client.regularisers.moon",
    "dual": "tasks.client.regularisers.fedhybrid",
    "control": "tasks.client.regularisers.scaffold",
}


@dataclass(frozen=True)
class RegulariserSpec:
    """A term and its numbers, as a round asks for it.

    Attributes:
        name: One of ``REGULARISERS``.
        values: Its settings.
    """

    name: str
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RegulariserContext:
    """What a term may look at.

    Attributes:
        model: The network that is about to be trained, with its start weights.
        references: The frozen models that the server sent.
        values: The term's settings.
        state: The client's private tensors of this term from its last training, empty the first time.
        shared: What the server sent to all clients beside the model, empty if nothing.
        train: Settings of the local loop.
        objective: Name of the loss that the client minimises, for messages.
    """

    model: "nn.Module"
    references: "tuple[Reference, ...]"
    values: Mapping[str, float]
    state: "dict[str, Tensor]"
    shared: "dict[str, Tensor]"
    train: "TrainSettings"
    objective: str = ""


class Regulariser:
    """The neutral term: changes nothing and keeps nothing. The others derive from it."""

    def change(self, loss: "Loss", images: "Tensor") -> "Loss":
        """The batch's loss with the term in it; ``images`` are the batch's, float [B, 3, S, S] in 0..1."""
        del images
        return loss

    def finish(self, steps: int) -> "dict[str, Tensor]":
        """The client's private tensors for its next training, after ``steps`` optimiser steps; empty if none."""
        del steps
        return {}


def no_guide(values: Mapping[str, float]) -> bool:
    """``needs_guide`` of the terms for which the start weights are enough."""
    del values
    return False


def load_regulariser(name: str) -> ModuleType:
    """The term's module: ``make(scene: RegulariserContext) -> Regulariser`` and ``needs_guide(values) -> bool``."""
    assert name in REGULARISERS, f"no term {name}"  # rounds name it, not users
    return import_module(REGULARISERS[name])
