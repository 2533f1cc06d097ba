"""What a method adds to any loss. A regulariser is a module with the parts of ``RegulariserModule``.

A new one is one module and one line in ``REGULARISERS``. A method asks for it with
``LocalWork(regularisers=(RegulariserSpec(name, values),))``; the local loop lets ``initialise`` change the initial
weights, passes every batch's ``Loss`` to ``change`` and keeps what ``finish`` returns for the client's next training.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasks.client.objectives import Batch, Loss, Reference, Step
    from tasks.core.train_settings import TrainSettings

    Epoch = Callable[[float], Iterator[Batch]]

# The names begin the tensor names of client states (``dual/readout.weight``): they are never changed.
REGULARISERS: dict[str, str] = {
    "prox": "tasks.client.regularisers.fedprox",
    "moon": "tasks.client.regularisers.moon",
    "dual": "tasks.client.regularisers.fedhybrid",
    "control": "tasks.client.regularisers.scaffold",
    "ditto": "tasks.client.regularisers.ditto",
    "fedala": "tasks.client.regularisers.fedala",
    "fedamp": "tasks.client.regularisers.fedamp",
}


@dataclass(frozen=True)
class RegulariserSpec:
    """A regulariser and its numbers, as a round asks for it.

    Attributes:
        name: One of ``REGULARISERS``, or the dotted path of a regulariser's module.
        values: Its settings.
    """

    name: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegulariserContext:
    """What a regulariser may use of a client's training.

    Attributes:
        model: The network that is about to be trained, with its initial weights.
        references: The frozen models that the server sent.
        values: The regulariser's settings.
        state: The client's private tensors of this regulariser from its last training, empty the first time.
        server_tensors: What the server sent to all clients beside the model, empty if nothing.
        train: Settings of the local loop.
        objective: Name of the loss that the client minimises, for messages.
    """

    model: "nn.Module"
    references: "tuple[Reference, ...]"
    values: Mapping[str, Any]
    state: "dict[str, Tensor]"
    server_tensors: "dict[str, Tensor]"
    train: "TrainSettings"
    objective: str = ""


class Regulariser:
    """The neutral regulariser: changes nothing and keeps nothing. The others derive from it."""

    def initialise(self, step: "Step", epoch: "Epoch") -> None:
        """Change the initial weights, before the optimiser is made; by default they stay as they were received.

        Args:
            step: The objective: a batch to its loss, not yet regularised.
            epoch: ``epoch(share)`` yields the first batches of a pass over the client's images, until that share of
                the images is reached; the same ones at each call.
        """
        del step, epoch

    def change(self, loss: "Loss", images: "Tensor") -> "Loss":
        """Return the batch's regularised loss; ``images`` are the batch's, float [B, 3, S, S] in 0..1."""
        del images
        return loss

    def finish(self, steps: int) -> "dict[str, Tensor]":
        """Return the client's private tensors for its next training, after ``steps`` optimiser steps; empty if none."""
        del steps
        return {}


class RegulariserModule(Protocol):
    """The parts of a regulariser's module; ``needs_reference`` is optional and defaults to no."""

    DESCRIPTION: str

    def make(self, local: RegulariserContext) -> Regulariser:
        """Return the regulariser of one client."""
        ...

    def needs_reference(self, values: Mapping[str, float]) -> bool:
        """Return whether clients are sent the reference models; else the received weights are enough."""
        ...


def no_reference(values: Mapping[str, float]) -> bool:
    """Return False: the default of ``needs_reference``."""
    del values
    return False


def load_regulariser(name: str) -> RegulariserModule:
    """Return the module of a regulariser: a key of ``REGULARISERS``, or the dotted path of a module."""
    assert name in REGULARISERS or "." in name, f"no regulariser {name}"  # methods name it, not users
    module = import_module(REGULARISERS.get(name, name))
    vars(module).setdefault("needs_reference", no_reference)
    return cast("RegulariserModule", module)
