"""Normalisation layers by name: ``batch``, ``group``, ``none``."""

from collections.abc import Callable
from functools import partial

from torch import nn

from models.settings.backbone import BackboneSettings

# Makes the layer for a number of channels
NormLayer = Callable[..., nn.Module]


def norm_layer(settings: BackboneSettings, own: str | None) -> NormLayer:
    """Return what makes the network's normalisation layers; ``nn.Identity`` if it has none.

    Args:
        settings: ``norm`` and ``norm_groups``.
        own: The network's usual normalisation, for ``norm: default``.
    """
    kind = own if settings.norm == "default" else settings.norm
    if kind == "group":
        return partial(nn.GroupNorm, settings.norm_groups)
    return nn.BatchNorm2d if kind == "batch" else nn.Identity
