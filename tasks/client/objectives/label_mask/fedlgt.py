"""FedLGT's label-mask training under a reference model (Liu et al., AAAI 2024; docs/algorithms/fedlgt.md).

The labels on which the reference is uncertain become unknown as well. The reference is the received global model, or,
where a method clusters clients, the model of the assigned cluster.
"""

from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from tasks.client.objectives import LocalContext, Loss, Needed, Step
from tasks.client.objectives.label_mask import label_mask_training
from tasks.core.problem_kind import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from models.label_aware.fmman import FmmanNetwork

DESCRIPTION = "FedLGT: label-mask training, labels uncertain to the global model are masked too (AAAI 2024)"
KINDS: tuple[Kind, ...] = ("multi_label",)  # it masks some labels and predicts the others


class Settings(label_mask_training.Settings):
    """Label-mask training under a reference model."""

    tau: float = Field(0.5, gt=0, lt=1, description="Middle of the reference's uncertain band.")
    eps: float = Field(0.02, ge=0, lt=0.5, description="Half-width of the band (FedLGT's code: 0.48 to 0.52).")
    band: Literal["closed", "open"] = Field("closed", description="Whether tau - eps and tau + eps are in the band.")
    reference_scope: Literal["all", "first"] = Field(
        "all", description="Images of a batch that the reference masks: all, or only the first, as FedLGT's code does."
    )


def references_needed(settings: Settings) -> Needed:
    """Return "own_cluster": the assigned cluster's model, or the global one."""
    del settings
    return "own_cluster"


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no label states.
    """
    import torch

    from tasks.client.objectives.label_mask.label_states import draw_known_states, mask_uncertain
    from tasks.client.objectives.label_mask.masked_loss import masked_loss, predict_all_unknown, with_states

    model, s = with_states(local.model, "fedlgt"), local.settings
    assert local.references, "FedLGT needs a reference model, and the round sends none (references=())"
    reference = cast("FmmanNetwork", local.references[local.assigned_cluster or 0].model)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        tokens = model.encode_image(images)
        base = draw_known_states(targets, local.generator, s.known_share)
        with torch.no_grad():
            masked = images if s.reference_scope == "all" else images[:1]
            unsure = predict_all_unknown(reference, reference.encode_image(masked))
            states = mask_uncertain(base[: len(masked)], unsure, None, s.tau, s.eps, s.band)
        states = torch.cat([states, base[len(masked) :]])
        loss = masked_loss(model, tokens, targets, [(states, 1)])
        scale = 1.0 if s.loss_reduction == "sum" else 1.0 / len(images)
        return Loss(scale * loss.total, loss.sums, loss.output.z)

    return step
