"""FedLGT's guided label-mask training (Liu et al., AAAI 2024; specification 4.3).

As label-mask training, and besides the labels that a guiding model is unsure of become unknown. The reference is the
global model that the client received; where a method forms groups, the client's own group's prototype.
"""

from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from tasks.client.objectives import Loss, Scene, Step
from tasks.client.objectives.label_mask import label_mask_training

if TYPE_CHECKING:
    from torch import Tensor

    from models.label_aware.fmman import FmmanNetwork

TITLE = "FedLGT: label-mask training, labels that the global model is unsure of unknown (AAAI 2024)"


class Settings(label_mask_training.Settings):
    """Label-mask training under a reference."""

    tau: float = Field(0.5, gt=0, lt=1, description="Middle of the reference's uncertain band.")
    eps: float = Field(0.02, ge=0, lt=0.5, description="Half-width of the band (FedLGT's code: 0.48 to 0.52).")
    band: Literal["closed", "open"] = Field("closed", description="Whether tau - eps and tau + eps are in the band.")
    reference_scope: Literal["all", "first"] = Field(
        "all", description="Images of a batch that the reference masks: all, or only the first, as FedLGT's code does."
    )


def references_needed(settings: Settings) -> Literal["none", "own", "all"]:
    """Which of the server's prototypes the client needs: its own group's, or the global model."""
    del settings
    return "own"


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no label states.
    """
    import torch

    from tasks.client.objectives.label_mask.label_states import draw_known_states, mask_uncertain
    from tasks.client.objectives.label_mask.shared import masked_loss, predict_all_unknown, with_states

    model, s = with_states(scene.model, "fedlgt"), scene.settings
    assert scene.references, "FedLGT needs a reference, and the round sends none (references=())"
    reference = cast("FmmanNetwork", scene.references[scene.own or 0].model)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        tokens = model.encode_image(images)
        base = draw_known_states(targets, scene.generator, s.known_share)
        with torch.no_grad():
            guided = images if s.reference_scope == "all" else images[:1]
            unsure = predict_all_unknown(reference, reference.encode_image(guided))
            states = mask_uncertain(base[: len(guided)], unsure, None, s.tau, s.eps, s.band)
        states = torch.cat([states, base[len(guided) :]])
        loss = masked_loss(model, tokens, targets, [(states, 1)])
        scale = 1.0 if s.loss_reduction == "sum" else 1.0 / len(images)
        return Loss(scale * loss.total, loss.sums, loss.output.z)

    return step
