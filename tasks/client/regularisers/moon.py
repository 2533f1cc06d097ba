"""MOON's model-contrastive term (Li, He and Song, CVPR 2021, eq 3; specification 4.4)."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from models.errors import UserError
from tasks.client.objectives import Loss
from tasks.client.objectives.label_mask.fmman_losses import own_group_contrast
from tasks.client.regularisers import Regulariser, RegulariserContext

TITLE = "MOON: features near the global model's and away from the client's previous model's"


def moon_contrast(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float) -> Tensor:
    """Cross entropy over [cos(z, z_global), cos(z, z_previous)] / temperature with the global model as the positive.

    It is log 2 where both cosines are equal.

    Args:
        z: Features of the model in training [B, F], with gradient.
        z_global: Features of the global model received this round [B, F], without.
        z_previous: Features of the client's model after its last training [B, F], without.
        temperature: Divides the cosines.

    Returns:
        Per image [B].
    """
    return own_group_contrast(z, [z_global, z_previous], 0, temperature)


class Moon(Regulariser):
    """The term; keeps the whole model (parameters and buffers) for the client's next training."""

    def __init__(self, scene: RegulariserContext) -> None:
        assert scene.references, "MOON contrasts with the global model, which the round sends"
        self.mu, self.temperature = scene.values["mu"], scene.values["temperature"]
        self.model, self.received = scene.model, scene.references[0].model
        self.objective = scene.objective
        self.previous = _earlier(self.received, scene.state) if scene.state else None

    def change(self, loss: Loss, images: Tensor) -> Loss:
        """The loss plus mu times the mean contrast, reported as ``model_contrast``; as it was in a first training.

        Raises:
            UserError: If the objective returns no features.
        """
        if loss.features is None:
            raise UserError(
                "MOON contrasts features, and the objective gives none",
                where="method.moon",
                expected="an objective that returns the batch's features for this network",
                found=f"{self.objective} with the network {type(self.model).__name__}",
            )
        if self.previous is None:
            return loss
        with torch.no_grad():
            z_global, z_previous = (_features(network, images) for network in (self.received, self.previous))
        each = moon_contrast(loss.features.float(), z_global, z_previous, self.temperature)
        sums = loss.sums | {"model_contrast": (each.detach().sum(), float(len(each)))}
        return dataclasses.replace(loss, total=loss.total + self.mu * each.mean(), sums=sums)

    def finish(self, steps: int) -> dict[str, Tensor]:
        """The model's state as it is now: the negative of the client's next training."""
        del steps
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}


def _earlier(like: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    """A frozen network with the given weights, which shares no tensor with any other."""
    model = copy.deepcopy(like)
    model.load_state_dict(state, strict=True)
    return model.eval().requires_grad_(False)


def _features(model: nn.Module, images: Tensor) -> Tensor:
    """What the network's ``features`` gives, float32 [B, F]."""
    features: Tensor = cast("Any", model).features(images)
    return features.float()


def needs_guide(values: Mapping[str, float]) -> bool:
    """Whether the client needs the global model as a frozen network: yes, unless the term weighs nothing."""
    return values["mu"] > 0


def make(scene: RegulariserContext) -> Regulariser:
    """The term for one client; with ``mu`` 0 the neutral one: FedAvg bit for bit, and no state is kept."""
    return Moon(scene) if scene.values["mu"] else Regulariser()
