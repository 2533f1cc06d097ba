"""Rules for start values: which distribution a layer's weights are drawn from.

Every rule draws from the generator it is given, weight first, then bias.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Layer = nn.Conv2d | nn.Linear
LayerRule = Callable[[Layer, torch.Generator], None]
TensorRule = Callable[[Tensor, torch.Generator], None]

TRUNCATED_AT_TWO = 0.87962566103423978  # deviation of a standard normal that is cut at -2 and 2


@dataclass(frozen=True)
class Initializers:
    """The rules of one network or of a part of it.

    Attributes:
        conv: For convolutions.
        linear: For linear layers.
        tensors: For parameters that belong to no layer of PyTorch's, by their own name (``pos_embed``).
    """

    conv: LayerRule
    linear: LayerRule
    tensors: Mapping[str, TensorRule] = field(default_factory=dict)


def fan_in(layer: Layer) -> int:
    """Inputs that one output reads: input channels of its group times the kernel's area."""
    return layer.weight[0].numel()


def he_fan_out(layer: Layer, generator: torch.Generator) -> None:
    """Normal, variance 2 / fan_out, fan_out = output channels of a group times the kernel's area (He); bias 0."""
    groups = layer.groups if isinstance(layer, nn.Conv2d) else 1
    fan_out = layer.weight.shape[0] * layer.weight[0, 0].numel() / groups
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0) / math.sqrt(fan_out), generator=generator)
    _zero_bias(layer)


def uniform_fan_in(layer: Layer, generator: torch.Generator) -> None:
    """Weight and bias uniform within 1 / sqrt(fan_in): PyTorch's own start values, and C-Tran's."""
    bound = 1.0 / math.sqrt(fan_in(layer))
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def uniform_fan_out(layer: Layer, generator: torch.Generator) -> None:
    """Weight and bias uniform within 1 / sqrt(outputs), the start of Kipf and Welling's graph convolutions.

    Their code keeps the weight as [in, out] and takes the root of its second dimension.
    """
    bound = 1.0 / math.sqrt(layer.weight.shape[0])
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def truncated_normal(layer: Layer, generator: torch.Generator) -> None:
    """Weight normal with deviation 0.02, cut at two units; bias 0. Vision transformers, PoolFormer."""
    truncated_normal_tensor(layer.weight, generator)
    _zero_bias(layer)


def xavier_uniform(layer: Layer, generator: torch.Generator) -> None:
    """Weight uniform within sqrt(6 / (fan_in + fan_out)) (Glorot); bias 0. ``nn.MultiheadAttention``'s q, k, v."""
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    _zero_bias(layer)


def lecun_normal(layer: Layer, generator: torch.Generator) -> None:
    """Weight normal with variance 1 / fan_in, cut at two deviations (LeCun; Flax's convolutions); bias 0."""
    spread = 1.0 / math.sqrt(fan_in(layer)) / TRUNCATED_AT_TWO
    nn.init.trunc_normal_(layer.weight, 0.0, spread, -2 * spread, 2 * spread, generator=generator)
    _zero_bias(layer)


def truncated_normal_tensor(tensor: Tensor, generator: torch.Generator) -> None:
    """Normal with deviation 0.02, cut at two units: class token and positions of vision transformers."""
    nn.init.trunc_normal_(tensor, std=0.02, generator=generator)


def constant(value: float) -> TensorRule:
    """The rule that sets every element to ``value``."""

    def rule(tensor: Tensor, generator: torch.Generator) -> None:
        nn.init.constant_(tensor, value)

    return rule


def _zero_bias(layer: Layer) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
