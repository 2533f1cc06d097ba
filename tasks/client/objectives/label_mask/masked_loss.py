"""Label-mask training's common part: networks with label states, and the loss over their unknown labels.

Shapes: B images of a batch, C labels, S image tokens, d width, M masks.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from models.errors import UserError
from tasks.client.objectives.label_mask.fmman_losses import unknown_label_bce

if TYPE_CHECKING:
    from models.label_aware.fmman import FmmanNetwork, HeadOutput


def with_states(model: nn.Module, objective: str) -> "FmmanNetwork":
    """Return the network, checked to have label states.

    Raises:
        UserError: If it has none.
    """
    from models.label_aware.fmman import FmmanNetwork
    from models.registry import NETWORKS

    if not isinstance(model, FmmanNetwork):
        fitting = [name for name, network in NETWORKS.items() if objective in network.objectives]
        raise UserError(
            f"objective {objective} needs a network with label states",
            where="objective.name",
            expected=f"model.name {' or '.join(fitting)}",
            found=type(model).__name__,
            hint="or --set objective.name=bce",
        )
    return model


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set eval mode for the block; every module gets its mode back (frozen BatchNorm stays frozen)."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def predict_all_unknown(model: "FmmanNetwork", tokens: Tensor) -> Tensor:
    """Return a model's probabilities [B, C] for image tokens [B, S, d] with every label unknown; needs eval mode."""
    probabilities: Tensor = model.head(tokens, model.unknown(1)).logits.float().sigmoid()
    return probabilities


@dataclass(frozen=True)
class MaskedLoss:
    """The classification loss of one batch under M masks.

    Attributes:
        output: The head's output, [M * B, ...], mask after mask.
        multiplicity: How often each row counts [M * B].
        total: Binary cross entropy summed over unknown labels, images and masks.
        labels: Unknown labels counted.
        masks: Masks counted, multiplicity included.
    """

    output: "HeadOutput"
    multiplicity: Tensor
    total: Tensor
    labels: float
    masks: int

    @property
    def sums(self) -> dict[str, tuple[Tensor, float]]:
        """Return the reported part: the mean per unknown label, by which eq 15 weights clients."""
        return {"classification": (self.total.detach(), self.labels)}


def masked_loss(
    model: "FmmanNetwork", tokens: Tensor, targets: Tensor, masks: Sequence[tuple[Tensor, int]]
) -> MaskedLoss:
    """Return eq 10 under every mask.

    Args:
        model: The network that is trained.
        tokens: Its image tokens [B, S, d].
        targets: 0/1 [B, C].
        masks: States [B, C], and how often each counts.
    """
    # All masks in one pass, [M * B, ...]: the head is small, and M calls would cost nearly M times as much.
    states = torch.cat([mask for mask, _ in masks])
    multiplicity = torch.cat([targets.new_full((len(targets),), count, dtype=torch.float32) for _, count in masks])
    output = model.head(tokens.repeat(len(masks), 1, 1), states)
    bce, unknown = unknown_label_bce(output.logits, targets.repeat(len(masks), 1), states)  # [M * B] each
    counted = float((multiplicity * unknown).sum())
    return MaskedLoss(output, multiplicity, (multiplicity * bce).sum(), counted, sum(count for _, count in masks))
