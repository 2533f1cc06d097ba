"""C-Tran's label-mask training (Lanchantin et al., CVPR 2021; specification 1.4.2 and 4.2)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.base_settings import Section
from tasks.client.objectives import Loss, Scene, Step

if TYPE_CHECKING:
    from torch import Tensor

TITLE = "C-Tran's label-mask training: a random subset of labels is known, the loss is that of the others (CVPR 2021)"


class Settings(Section):
    """Label-mask training."""

    known_share: float = Field(0.75, ge=0, le=1, description="Largest share of labels known to the network.")
    loss_reduction: Literal["sum", "mean"] = Field(
        "sum", description="Over the images of a batch: sum, as C-Tran; or mean. Unknown labels are summed in both."
    )


def references_needed(settings: Settings) -> Literal["none", "own", "all"]:
    """Which of the server's prototypes the client needs: none."""
    del settings
    return "none"


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no label states.
    """
    from tasks.client.objectives.label_mask.label_states import draw_known_states
    from tasks.client.objectives.label_mask.shared import masked_loss, with_states

    model, s = with_states(scene.model, "label_mask_training"), scene.settings

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        tokens = model.encode_image(images)
        states = draw_known_states(targets, scene.generator, s.known_share)
        loss = masked_loss(model, tokens, targets, [(states, 1)])
        scale = 1.0 if s.loss_reduction == "sum" else 1.0 / len(images)
        return Loss(scale * loss.total, loss.sums, loss.output.z)

    return step
