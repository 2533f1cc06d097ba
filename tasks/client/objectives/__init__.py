"""One loss per method. An objective is a module here with ``TITLE``, ``Settings``, ``references_needed`` and ``make``.

A new objective is one module and one line in ``OBJECTIVES``. The local loop (``tasks.client.train``) calls the
step that ``make(scene)`` returns with a batch and gets a ``Loss`` back; it knows nothing else about a method.
``references_needed(settings)`` says which reference models a client is sent: ``none``, its ``own`` cluster's, ``all``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from models.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

OBJECTIVES = {
    "bce": "tasks.client.objectives.bce",
    "fmman": "tasks.client.objectives.label_mask.fmman",
    "label_mask_training": "tasks.client.objectives.label_mask.label_mask_training",
    "fedlgt": "tasks.client.objectives.label_mask.fedlgt",
    "asl": "tasks.client.objectives.asl",
}


@dataclass(frozen=True)
class Reference:
    """A frozen model that the server sent along.

    Attributes:
        model: The network in eval mode, without gradients.
        multiplicity: How many equal multiplicity of it the client holds (FMMAN's stage 1 holds K of the global model).
    """

    model: "nn.Module"
    multiplicity: int = 1


@dataclass(frozen=True)
class Scene:
    """What an objective may look at.

    Attributes:
        model: The network that is being trained.
        references: The frozen prototypes, in cluster order.
        own: Index of the client's own cluster among the references, ``None`` without clusters.
        settings: The objective's own settings section.
        generator: Where its random draws come from.
        targets: The client's training labels, uint8 [M_i, C].
    """

    model: "nn.Module"
    references: tuple[Reference, ...]
    own: int | None
    settings: Any
    generator: "torch.Generator"
    targets: "Tensor"


@dataclass(frozen=True)
class Loss:
    """The loss of one batch.

    Attributes:
        total: What is minimised, a scalar with gradient.
        sums: For each reported term (sum, weight); the term's mean over a stage is the quotient of the sums.
            The term ``classification`` is always there: a mean per counted label.
        features: The batch's features [B, F] with gradient, where the objective computes them: what MOON contrasts.
    """

    total: "Tensor"
    sums: "dict[str, tuple[Tensor, float]]" = field(default_factory=dict)
    features: "Tensor | None" = None


Step = Callable[["Tensor", "Tensor"], Loss]


def load_objective(name: str) -> ModuleType:
    """The objective's module.

    Raises:
        UserError: If there is no objective of that name.
    """
    if name not in OBJECTIVES:
        raise UserError("no such objective", where="objective.name", expected=sorted(OBJECTIVES), found=name)
    return import_module(OBJECTIVES[name])
