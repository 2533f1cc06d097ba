"""Binary cross entropy for any network that maps images to logits."""

from typing import TYPE_CHECKING

from models.base_settings import Section
from tasks.client.objectives import Loss, Scene, Step

if TYPE_CHECKING:
    from torch import Tensor

TITLE = "binary cross entropy on logits, mean over labels and images"


class Settings(Section):
    """Binary cross entropy has nothing to set."""


def uses_guides(settings: Settings) -> bool:
    """Whether the client needs the server's prototypes: never."""
    del settings
    return False


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        loss = binary_cross_entropy_with_logits(scene.model(images).float(), targets.float())
        return Loss(loss, {"classification": (loss.detach() * targets.numel(), float(targets.numel()))})

    return step
