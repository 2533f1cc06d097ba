"""C-Tran's label-mask training (Lanchantin et al., CVPR 2021; docs/algorithms/ctran.md)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.client.objectives import LocalContext, Loss, Step
from tasks.core.problem_kind import Kind

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "C-Tran's label-mask training: random labels are known, the loss is over the others (CVPR 2021)"
KINDS: tuple[Kind, ...] = ("multi_label",)  # it masks some labels and predicts the others


class Settings(Section):
    """Label-mask training."""

    known_share: float = Field(0.75, ge=0, le=1, description="Largest share of labels known to the network.")
    loss_reduction: Literal["sum", "mean"] = Field(
        "sum", description="Over the images of a batch: sum, as C-Tran; or mean. Unknown labels are summed in both."
    )


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no label states.
    """
    from tasks.client.objectives.label_mask.label_states import draw_known_states
    from tasks.client.objectives.label_mask.masked_loss import masked_loss, with_states

    model, s = with_states(local.model, "label_mask_training"), local.settings

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        tokens = model.encode_image(images)
        states = draw_known_states(targets, local.generator, s.known_share)
        loss = masked_loss(model, tokens, targets, [(states, 1)])
        scale = 1.0 if s.loss_reduction == "sum" else 1.0 / len(images)
        return Loss(scale * loss.total, loss.sums, loss.output.z)

    return step
