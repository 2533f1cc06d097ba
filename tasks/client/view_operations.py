"""The operations of torchvision's ``v2.RandAugment`` on a batch, each image with its own strength.

A strength is a share of the largest one. Geometric operations fill with black, as torchvision's do by default.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import affine_grid, grid_sample

from tasks.client.augmentation import adjust_brightness, adjust_contrast, adjust_saturation, blend

if TYPE_CHECKING:
    from torch import Tensor

STEPS = 30  # strengths from 0 to the largest in as many steps: torchvision's 31 bins
GEOMETRIC = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
OPERATIONS: Any = (
    "identity",
    *GEOMETRIC,
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
_SHEAR, _TRANSLATE, _ROTATE, _ENHANCE = 0.3, 150 / 331, 30.0, 0.9  # the largest: slope, share of the side, degrees, 1-f


def geometric_matrices(names: Sequence[str], strengths: "Tensor", signs: "Tensor", size: int) -> "Tensor":
    """Return from where the pixels of each image come, float [B, 2, 3] for ``affine_grid``.

    A shear is about the upper left corner, a rotation about the centre; a translation is by whole pixels.

    Args:
        names: Of ``GEOMETRIC``, B.
        strengths: Shares of the largest change [B].
        signs: 1 or -1 [B].
        size: Side of the images in pixels.
    """
    matrices = []
    for name, strength, sign in zip(names, strengths.tolist(), signs.tolist(), strict=True):
        slope, pixels = sign * _SHEAR * strength, int(sign * _TRANSLATE * size * strength)
        angle = math.radians(sign * _ROTATE * strength)
        cos, sin = math.cos(angle), math.sin(angle)
        matrices.append(
            {
                "shear_x": [[1.0, slope, slope], [0.0, 1.0, 0.0]],
                "shear_y": [[1.0, 0.0, 0.0], [slope, 1.0, slope]],
                "translate_x": [[1.0, 0.0, -2 * pixels / size], [0.0, 1.0, 0.0]],
                "translate_y": [[1.0, 0.0, 0.0], [0.0, 1.0, -2 * pixels / size]],
                "rotate": [[cos, -sin, 0.0], [sin, cos, 0.0]],
            }[name]
        )
    return torch.tensor(matrices, device=strengths.device)


def warp(images: "Tensor", matrices: "Tensor") -> "Tensor":
    """Return each image [B, C, S, S] with its pixels from where its matrix [B, 2, 3] says, bilinearly."""
    grid = affine_grid(matrices.to(images.dtype), list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def apply_operation(name: str, images: "Tensor", strengths: "Tensor", signs: "Tensor") -> "Tensor":
    """Return images [B, C, S, S] in 0..1 changed by a colour operation.

    Args:
        name: The operation.
        images: The images.
        strengths: Shares of the largest change [B].
        signs: 1 or -1 [B].
    """
    from torchvision.transforms.v2 import functional

    factors = 1 + signs * _ENHANCE * strengths
    match name:
        case "brightness":
            return adjust_brightness(images, factors)
        case "color":
            return adjust_saturation(images, factors)
        case "contrast":
            return adjust_contrast(images, factors)
        case "sharpness":
            return blend(images, functional.adjust_sharpness(images, 0.0), factors)
        case "posterize":
            return posterize(images, (8 - 4 * strengths).round())
        case "solarize":
            return solarize(images, 1 - strengths)
        case "autocontrast":
            return functional.autocontrast(images)  # of each image and channel
        case "equalize":
            return functional.equalize(images)  # of each image and channel
    raise ValueError(f"no such operation: {name}")


def posterize(images: "Tensor", bits: "Tensor") -> "Tensor":
    """Keep the upper ``bits`` [B] of each image's 8."""
    levels = (2**bits)[:, None, None, None]
    return torch.minimum((images * levels).floor(), levels - 1) / levels


def solarize(images: "Tensor", thresholds: "Tensor") -> "Tensor":
    """Invert the values of each image from its threshold [B] on."""
    return torch.where(images >= thresholds[:, None, None, None], 1 - images, images)
