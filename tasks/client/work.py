"""What a client does with what it is sent: the loss, on which data, which parameters, how long."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tasks.client.objectives import Objective, load_objective
from tasks.client.regularisers import RegulariserSpec

if TYPE_CHECKING:
    from tasks.core.context import RunContext

Data = Literal["labelled", "unlabelled", "both"]


@dataclass(frozen=True)
class ObjectiveSpec:
    """A loss other than the run's.

    Attributes:
        name: Key of ``OBJECTIVES``, or the dotted path of an objective's module.
        values: Its settings; those left out have their defaults.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalWork:
    """One client's work in one stage. The default is supervised training of all parameters, as the settings say.

    Attributes:
        objective: The loss; ``None``: the run's (``objective.name``).
        regularisers: What the method adds to the loss, in this order.
        data: The client's training images that count: it must have some, and reports their number.
        trainable: Prefixes of the names of the parameters that are trained; ``None``: all.
        keeps: Prefixes of the names of tensors that the client keeps: they are not sent, and its next training starts
            with them.
        stays: The trained model stays with the client: nothing is sent, and no update transform changes it. The method
            names it in the round's state.
        epochs: Passes over the images; ``None``: ``train.epochs``.
        steps: Optimiser steps instead of epochs; ``None``: ``train.steps``.
        reveal: Whether the true labels of the unlabelled images count as labels: only for fully supervised references,
            what the method would reach if nothing were hidden.
        init: ``best_reference``: training starts from the reference model with the lowest local loss, not from the
            weights that were sent.
    """

    objective: ObjectiveSpec | None = None
    regularisers: tuple[RegulariserSpec, ...] = ()
    data: Data = "labelled"
    trainable: tuple[str, ...] | None = None
    keeps: tuple[str, ...] = ()
    stays: bool = False
    epochs: int | None = None
    steps: int | None = None
    reveal: bool = False
    init: Literal["start", "best_reference"] = "start"


def chosen_objective(context: "RunContext", work: LocalWork) -> tuple[Objective, Any]:
    """Return the objective of a training and its settings: the run's, or the one that the method asks for."""
    if work.objective is None:
        return load_objective(context.objective), context.objective_settings
    objective = load_objective(work.objective.name)
    return objective, objective.Settings.model_validate(dict(work.objective.values))
