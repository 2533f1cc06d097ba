"""The losses that clients minimise, one module each. A module has the parts of ``Objective``.

A new objective is one module and one line in ``OBJECTIVES``. The local loop (``tasks.client.local_training``)
calls the step that ``make`` returns with every batch, and gets a ``Loss`` back; it knows nothing else of an objective.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from models.errors import UserError
from models.settings.section import Section
from tasks.client.batches import batches
from tasks.client.payload import Needed
from tasks.client.sampling import balancing_weights
from tasks.core.network import to_float
from tasks.core.problem_kind import KINDS, Kind

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from tasks.client.local_data import LocalData
    from tasks.core.train_settings import TrainSettings

OBJECTIVES = {
    "bce": "tasks.client.objectives.bce",
    "ce": "tasks.client.objectives.ce",
    "fmman": "tasks.client.objectives.label_mask.fmman",
    "label_mask_training": "tasks.client.objectives.label_mask.label_mask_training",
    "fedlgt": "tasks.client.objectives.label_mask.fedlgt",
    "asl": "tasks.client.objectives.asl",
}

Batch = tuple["Tensor", ...]  # images first: regularisers see them


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
        targets: The client's training labels, uint8 [M_i, C], on the run's device.
        data: The client's images, labelled and unlabelled.
    """

    model: "nn.Module"
    references: tuple[Reference, ...]
    assigned_cluster: int | None
    settings: Any
    generator: "torch.Generator"
    targets: "Tensor"
    data: "LocalData | None" = None


@dataclass(frozen=True)
class Epoch:
    """One pass of a client over its images, as the objective's ``batches`` gets it.

    Attributes:
        local: The training: its data, its generator and its labels on the device.
        settings: Settings of the local loop.
        order: Source of the order of images, shared by all epochs of the training.
        device: Where batches go.
        number: The epoch, from 0.
        round: The round, from 1.
    """

    local: LocalContext
    settings: "TrainSettings"
    order: "np.random.Generator"
    device: str
    number: int
    round: int


def labelled_batches(epoch: Epoch) -> "Iterator[tuple[Tensor, Tensor]]":
    """Yield the labelled images in random order, augmented: float [B, 3, S, S] in 0..1 and targets uint8 [B, C].

    With a frozen encoder it may be the images' vectors [B, D] instead (``tasks.client.frozen_backbone``). The default
    of an objective's ``batches``.
    """
    import torch

    from tasks.client.augmentation import augment

    local = epoch.local
    assert local.data is not None
    images = local.data.images
    weights = balancing_weights(local.data.targets) if epoch.settings.sampling == "balanced" else None
    vectors = local.data.vectors
    for rows in batches(len(images), epoch.settings.batch_size, epoch.order, weights):
        if vectors is not None:
            x = vectors[torch.from_numpy(rows)].to(epoch.device)
        else:
            x = augment(to_float(images[rows], epoch.device), epoch.settings, local.generator)
        yield x, local.targets[torch.from_numpy(rows).to(epoch.device)]


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


Step = Callable[..., Loss]


class Objective(Protocol):
    """The parts of an objective's module; all but ``DESCRIPTION``, ``Settings`` and ``make`` are optional.

    Attributes:
        DESCRIPTION: One line for `fedscene methods`.
        Settings: Its section of the settings.
        KINDS: The kinds of problem that it is for; default: all.

    ``references_needed`` defaults to none, ``batches`` to the labelled images in random order.
    """

    DESCRIPTION: str
    Settings: type[Section]
    KINDS: tuple[Kind, ...]

    def make(self, local: LocalContext) -> Step:
        """Return the step for one client: ``step(*batch) -> Loss``.

        With the default batches: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.
        """
        ...

    def batches(self, epoch: Epoch) -> "Iterator[Batch]":
        """Yield the batches of one epoch; the first tensor of each are the images that regularisers see."""
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

    Args:
        name: Key of ``OBJECTIVES``, or the dotted path of a module that a method brings along.

    Raises:
        UserError: If there is no objective of that name.
    """
    if name not in OBJECTIVES and "." not in name:
        raise UserError("no such objective", where="objective.name", expected=sorted(OBJECTIVES), found=name)
    module = import_module(OBJECTIVES.get(name, name))
    vars(module).setdefault("references_needed", no_references)
    vars(module).setdefault("check", accept_all)
    vars(module).setdefault("KINDS", KINDS)
    vars(module).setdefault("batches", labelled_batches)
    return cast("Objective", module)
