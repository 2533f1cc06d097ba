"""Training with a frozen image encoder (``train.freeze: backbone``): its vectors of the images are computed once.

Vectors are used where they say all that training sees of an image: in a plain classifier, without augmentation, on
labelled images. They are computed in batches of their own, so they do not depend on the process or the round.
"""

import copy
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from models.classifiers.classifier import Classifier
from models.weights.parts import PREFIX, backbone_of
from tasks.client.local_data import LocalData
from tasks.client.objectives import Objective, labelled_batches
from tasks.core.network import to_float
from tasks.core.state_cache import LastUsed

if TYPE_CHECKING:
    from tasks.core.context import RunContext

BATCH = 64  # images of a forward pass; part of the result, as kernels round differently by it
_vectors: "LastUsed[Tensor]" = LastUsed()


class GivenVectors(nn.Module):
    """In place of an image encoder: what it is given are the vectors [B, D]."""

    def pooled(self, x: Tensor) -> Tensor:
        """Return the vectors."""
        return x


def freeze_backbone(model: nn.Module) -> list[nn.Parameter]:
    """Freeze the image encoder's parameters; return those that were not frozen before."""
    parameters = [value for value in backbone_of(model).parameters() if value.requires_grad]
    for value in parameters:
        value.requires_grad_(False)
    return parameters


def takes_vectors(context: "RunContext", model: nn.Module, objective: Objective) -> bool:
    """Return whether a training takes the encoder's vectors in place of the images."""
    return (
        context.train.freeze == "backbone"
        and isinstance(model, Classifier)
        and not context.train.augments
        and objective.batches is labelled_batches
    )


def without_backbone(model: nn.Module) -> nn.Module:
    """Return a view of a classifier that maps vectors [B, D] to logits; all other layers are the classifier's own."""
    view = copy.copy(model)
    view._modules = model._modules | {PREFIX.removesuffix("."): GivenVectors()}
    return view


def with_vectors(context: "RunContext", model: nn.Module, data: LocalData, client: str) -> LocalData:
    """Return a client's data with the encoder's vectors of its labelled images, computed once in this process."""
    backbone = backbone_of(model)
    key = context.dataset, context.clients, client, context.device, state_digest(backbone)
    size = len(data.images) * backbone.width * 4
    return replace(data, vectors=_vectors.get(key, size, lambda: compute_vectors(context, model, data)))


def state_digest(module: nn.Module) -> str:
    """Return the sha256 of a module's tensors."""
    digest = hashlib.sha256()
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def compute_vectors(context: "RunContext", model: nn.Module, data: LocalData) -> Tensor:
    """Return the vectors of all labelled images, float32 [M, D] on the CPU."""
    backbone = backbone_of(model)
    training = backbone.training
    backbone.eval()
    with torch.no_grad():
        parts = [
            backbone.pooled(to_float(data.images[start : start + BATCH], context.device)).float().cpu()
            for start in range(0, len(data.images), BATCH)
        ]
    backbone.train(training)
    return torch.cat(parts)
