"""Binary cross entropy for any network that maps images to logits."""

from typing import TYPE_CHECKING

from models.base_settings import Section
from tasks.client.objectives import LocalContext, Loss, Step
from tasks.client.objectives.forward import forward_with_embedding

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "binary cross entropy on logits, mean over labels and images"


class Settings(Section):
    """Binary cross entropy has nothing to set."""


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    forward = forward_with_embedding(local.model)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        logits, embedding = forward(images)
        loss = binary_cross_entropy_with_logits(logits.float(), targets.float())
        return Loss(loss, {"classification": (loss.detach() * targets.numel(), float(targets.numel()))}, embedding)

    return step
