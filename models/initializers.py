"""Initialisation rules: the distributions of a layer's initial weights.

Every rule draws from the given generator, weight first, then bias.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Layer = nn.Conv2d | nn.Linear
LayerRule = Callable[[Layer, torch.Generator], None]
TensorRule = Callable[[Tensor, torch.Generator], None]

TRUNCATED_AT_TWO = 0.87962566103423978  # standard deviation of a standard normal truncated at -2 and 2


@dataclass(frozen=True)
class Initializers:
    """The rules of one network or of a part of it.

    Attributes:
        conv: For convolutions.
        linear: For linear layers.
        tensors: For parameters outside PyTorch's layers, by name (``pos_embed``).
    """

    conv: LayerRule
    linear: LayerRule
    tensors: Mapping[str, TensorRule] = field(default_factory=dict)


def fan_in(layer: Layer) -> int:
    """Return the number of inputs of one output: input channels of its group times the kernel's area."""
    return layer.weight[0].numel()


def he_fan_out(layer: Layer, generator: torch.Generator) -> None:
    """Draw from N(0, 2 / fan_out), fan_out = output channels of a group times the kernel's area (He); bias 0."""
    groups = layer.groups if isinstance(layer, nn.Conv2d) else 1
    fan_out = layer.weight.shape[0] * layer.weight[0, 0].numel() / groups
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0) / math.sqrt(fan_out), generator=generator)
    _zero_bias(layer)


def uniform_fan_in(layer: Layer, generator: torch.Generator) -> None:
    """Draw weight and bias uniformly within 1 / sqrt(fan_in), as PyTorch and C-Tran do."""
    bound = 1.0 / math.sqrt(fan_in(layer))
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def uniform_fan_out(layer: Layer, generator: torch.Generator) -> None:
    """Draw weight and bias uniformly within 1 / sqrt(outputs), as Kipf and Welling's graph convolutions.

    Their code stores the weight as [in, out] and takes the root of its second dimension.
    """
    bound = 1.0 / math.sqrt(layer.weight.shape[0])
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def truncated_normal(layer: Layer, generator: torch.Generator) -> None:
    """Draw the weight from a normal, std 0.02, truncated at -2 and 2; bias 0 (vision transformers, PoolFormer)."""
    truncated_normal_tensor(layer.weight, generator)
    _zero_bias(layer)


def xavier_uniform(layer: Layer, generator: torch.Generator) -> None:
    """Draw the weight uniformly within sqrt(6 / (fan_in + fan_out)) (Glorot); bias 0. For attention's q, k, v."""
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    _zero_bias(layer)


def lecun_normal(layer: Layer, generator: torch.Generator) -> None:
    """Draw the weight from a normal, variance 1 / fan_in, truncated at two standard deviations (LeCun); bias 0."""
    std = 1.0 / math.sqrt(fan_in(layer)) / TRUNCATED_AT_TWO
    nn.init.trunc_normal_(layer.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
    _zero_bias(layer)


def truncated_normal_tensor(tensor: Tensor, generator: torch.Generator) -> None:
    """Draw from a normal, std 0.02, truncated at -2 and 2: class token and positions of vision transformers."""
    nn.init.trunc_normal_(tensor, std=0.02, generator=generator)


def constant(value: float) -> TensorRule:
    """Return the rule that sets every element to ``value``."""

    def rule(tensor: Tensor, generator: torch.Generator) -> None:
        nn.init.constant_(tensor, value)

    return rule


def _zero_bias(layer: Layer) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
