"""MOON's model-contrastive term (Li, He and Song, CVPR 2021, eq 3; docs/algorithms/moon.md)."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from models.errors import UserError
from tasks.client.objectives import Loss
from tasks.client.objectives.contrastive import contrastive_loss
from tasks.client.regularisers import Regulariser, RegulariserContext

DESCRIPTION = "MOON: contrastive loss between the embeddings of the global and the client's previous model"


def model_contrastive_loss(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float) -> Tensor:
    """Return the cross entropy over [cos(z, z_global), cos(z, z_previous)] / temperature.

    The global model is the positive. It is log 2 where both cosines are equal.

    Args:
        z: Embeddings of the model in training [B, F], with gradient.
        z_global: Embeddings of the global model received this round [B, F], without.
        z_previous: Embeddings of the client's model after its last training [B, F], without.
        temperature: Divides the cosines.

    Returns:
        Per image [B].
    """
    return contrastive_loss(z, [z_global, z_previous], 0, temperature)


class Moon(Regulariser):
    """The term; keeps the whole model (parameters and buffers) for the client's next training."""

    def __init__(self, local: RegulariserContext) -> None:
        assert local.references, "MOON contrasts with the global model, which the round sends"
        self.mu, self.temperature = local.values["mu"], local.values["temperature"]
        self.model, self.received = local.model, local.references[0].model
        self.objective = local.objective
        self.previous = _previous_model(self.received, local.state) if local.state else None

    def change(self, loss: Loss, images: Tensor) -> Loss:
        """Return the loss plus mu times the mean ``model_contrast``; in a client's first training the loss as it is.

        Raises:
            UserError: If the objective returns no embedding.
        """
        if loss.embedding is None:
            raise UserError(
                "MOON contrasts embeddings, and the objective returns none",
                where="method.moon",
                expected="an objective that returns the batch's embeddings for this network",
                found=f"{self.objective} with the network {type(self.model).__name__}",
            )
        if self.previous is None:
            return loss
        with torch.no_grad():
            z_global, z_previous = (_embed(network, images) for network in (self.received, self.previous))
        each = model_contrastive_loss(loss.embedding.float(), z_global, z_previous, self.temperature)
        sums = loss.sums | {"model_contrast": (each.detach().sum(), float(len(each)))}
        return dataclasses.replace(loss, total=loss.total + self.mu * each.mean(), sums=sums)

    def finish(self, steps: int) -> dict[str, Tensor]:
        """Return a copy of the model's state: the negative of the client's next training."""
        del steps
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}


def _previous_model(like: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    """Return a frozen network with the given weights that shares no tensor with any other."""
    model = copy.deepcopy(like)
    model.load_state_dict(state, strict=True)
    return model.eval().requires_grad_(False)


def _embed(model: nn.Module, images: Tensor) -> Tensor:
    """Return the network's embeddings, float32 [B, F]."""
    embedding: Tensor = cast("Any", model).embed(images)
    return embedding.float()


def needs_reference(values: Mapping[str, float]) -> bool:
    """Return whether the client needs the global model as a frozen network: yes, unless mu is 0."""
    return values["mu"] > 0


def make(local: RegulariserContext) -> Regulariser:
    """Return the regulariser of one client; with ``mu`` 0 the neutral one: FedAvg bit for bit, and no state is kept."""
    return Moon(local) if local.values["mu"] else Regulariser()
