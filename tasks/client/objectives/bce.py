"""Binary cross entropy for any network that maps images to logits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.client.objectives import LocalContext, Loss, Step
from tasks.client.objectives.forward import forward_with_embedding

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "binary cross entropy on logits, mean over labels and images"

Weight = Annotated[float, Field(ge=0)]


class Settings(Section):
    """Weights of present labels."""

    positive_weights: Literal["none", "balanced"] | list[Weight] = Field(
        "none",
        description="Weight of a present label against an absent one. balanced: images of the client without the label "
        "/ with it; or a list, one number for each class, the same for all clients.",
    )


def check(settings: Settings, classes: Sequence[str]) -> None:
    """Refuse a list of weights that has not one for each class.

    Raises:
        UserError: If it has another length.
    """
    from tasks.client.objectives.class_weights import check_given

    check_given(settings.positive_weights, len(classes), "objective.bce.positive_weights")


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    forward, weights = forward_with_embedding(local.model), _weights(local)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        logits, embedding = forward(images)
        loss = binary_cross_entropy_with_logits(logits.float(), targets.float(), pos_weight=weights)
        return Loss(loss, {"classification": (loss.detach() * targets.numel(), float(targets.numel()))}, embedding)

    return step


def _weights(local: LocalContext) -> "Tensor | None":
    """Return the weights of present labels [C] of a client, ``None`` without any."""
    from tasks.client.objectives.class_weights import given_weights, positive_weights

    chosen = local.settings.positive_weights
    if chosen == "none":
        return None
    if chosen == "balanced":
        return positive_weights(local.targets)
    weights = given_weights(chosen, local.targets.shape[1], "objective.bce.positive_weights")
    return weights.to(local.targets.device)
