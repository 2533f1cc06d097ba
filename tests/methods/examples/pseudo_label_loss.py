"""Pseudo-labels: the prediction for an image is the label of a shifted view of it, where it is sure."""

from collections.abc import Iterator

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from models.settings.section import Section
from tasks.client.batches import batches as index_batches
from tasks.client.objectives import Epoch, LocalContext, Loss, Step
from tasks.core.network import to_float

DESCRIPTION = "example: binary cross entropy on pseudo-labels"


class Settings(Section):
    """When a prediction counts."""

    confidence: float = Field(0.6, ge=0.5, lt=1, description="Least probability.")


def batches(epoch: Epoch) -> Iterator[tuple[Tensor, ...]]:
    """Yield two views of the unlabelled images: as they are, and shifted."""
    images = epoch.local.data.unlabelled
    for rows in index_batches(len(images), epoch.settings.batch_size, epoch.order):
        weak = to_float(images[rows], epoch.device)
        shift = int(torch.randint(-2, 3, (), generator=epoch.local.generator))
        yield weak, weak.roll(shift, dims=-1)


def make(local: LocalContext) -> Step:
    """Return the step: ``step(weak [B, 3, S, S], strong [B, 3, S, S]) -> Loss``."""

    def step(weak: Tensor, strong: Tensor) -> Loss:
        with torch.no_grad():
            p = local.model(weak).sigmoid()
        sure = (p >= local.settings.confidence) | (p <= 1 - local.settings.confidence)
        each = binary_cross_entropy_with_logits(local.model(strong), (p >= 0.5).float(), reduction="none")
        total = (each * sure).sum() / sure.sum().clamp(min=1)
        counted = float(sure.sum())
        return Loss(
            total, {"classification": (total.detach() * counted, counted), "sure": (sure.float().sum(), sure.numel())}
        )

    return step
