"""Binary cross entropy for any network that maps images to logits."""

from typing import TYPE_CHECKING, Literal

from models.base_settings import Section
from tasks.client.objectives import Loss, Scene, Step
from tasks.client.objectives.forward import forward_of

if TYPE_CHECKING:
    from torch import Tensor

TITLE = "binary cross entropy on logits, mean over labels and images"


class Settings(Section):
    """Binary cross entropy has nothing to set."""


def references_needed(settings: Settings) -> Literal["none", "own", "all"]:
    """Which of the server's prototypes the client needs: none."""
    del settings
    return "none"


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    forward = forward_of(scene.model)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        logits, features = forward(images)
        loss = binary_cross_entropy_with_logits(logits.float(), targets.float())
        return Loss(loss, {"classification": (loss.detach() * targets.numel(), float(targets.numel()))}, features)

    return step
