"""The losses that clients minimise, one module each. A module has the parts of ``Objective``.

A new objective is one module and one line in ``OBJECTIVES``. The local loop (``tasks.client.train``) calls the step
that ``make`` returns with every batch and gets a ``Loss`` back; it knows nothing else about an objective.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from models.base_settings import Section
from models.errors import UserError
from tasks.core.problem_kind import KINDS, Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

OBJECTIVES = {
    "bce": "tasks.client.objectives.bce",
    "ce": "tasks.client.objectives.ce",
    "fmman": "tasks.client.objectives.label_mask.fmman",
    "label_mask_training": "tasks.client.objectives.label_mask.label_mask_training",
    "fedlgt": "tasks.client.objectives.label_mask.fedlgt",
    "asl": "tasks.client.objectives.asl",
}

Needed = Literal["none", "own_cluster", "all"]  # reference models that a client is sent


@dataclass(frozen=True)
class Reference:
    """A frozen model that the server sent along.

    Attributes:
        model: The network in eval mode, without gradients.
        multiplicity: How many equal models it stands for (FMMAN's stage 1 has K copies of the global model).
    """

    model: "nn.Module"
    multiplicity: int = 1


@dataclass(frozen=True)
class LocalContext:
    """What an objective may use of a client's training.

    Attributes:
        model: The network that is being trained.
        references: The frozen reference models, in cluster order.
        assigned_cluster: Index of the client's cluster among the references; ``None`` without clusters.
        settings: The objective's own settings section.
        generator: Source of its random numbers.
        targets: The client's training labels, uint8 [M_i, C].
    """

    model: "nn.Module"
    references: tuple[Reference, ...]
    assigned_cluster: int | None
    settings: Any
    generator: "torch.Generator"
    targets: "Tensor"


@dataclass(frozen=True)
class Loss:
    """The loss of one batch.

    Attributes:
        total: What is minimised, a scalar with gradient.
        sums: For each reported part (sum, weight); its mean over a stage is the quotient of the sums. The part
            ``classification`` is always there: a mean per counted label.
        embedding: The batch's embeddings [B, F] with gradient, where the objective computes them; MOON contrasts them.
    """

    total: "Tensor"
    sums: "dict[str, tuple[Tensor, float]]" = field(default_factory=dict)
    embedding: "Tensor | None" = None


Step = Callable[["Tensor", "Tensor"], Loss]


class Objective(Protocol):
    """The parts of an objective's module; all but ``DESCRIPTION``, ``Settings`` and ``make`` are optional.

    Attributes:
        DESCRIPTION: One line for `fedscene methods`.
        Settings: Its section of the settings.
        KINDS: The kinds of problem that it is for; default: all.
    """

    DESCRIPTION: str
    Settings: type[Section]
    KINDS: tuple[Kind, ...]

    def make(self, local: LocalContext) -> Step:
        """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``."""
        ...

    def references_needed(self, settings: Any) -> Needed:
        """Return which reference models a client is sent: none, its cluster's, or all; default: none."""
        ...

    def check(self, settings: Any, classes: Sequence[str]) -> None:
        """Raise a UserError if the settings do not fit the classes; called before any work starts."""
        ...


def no_references(settings: Any) -> Needed:
    """Return "none": the default of ``references_needed``."""
    del settings
    return "none"


def accept_all(settings: Any, classes: Sequence[str]) -> None:
    """Accept all settings: the default of ``check``."""
    del settings, classes


def load_objective(name: str) -> Objective:
    """Return the module of an objective.

    Raises:
        UserError: If there is no objective of that name.
    """
    if name not in OBJECTIVES:
        raise UserError("no such objective", where="objective.name", expected=sorted(OBJECTIVES), found=name)
    module = import_module(OBJECTIVES[name])
    vars(module).setdefault("references_needed", no_references)
    vars(module).setdefault("check", accept_all)
    vars(module).setdefault("KINDS", KINDS)
    return cast("Objective", module)
