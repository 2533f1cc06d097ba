"""Weak and strong views of a batch for semi-supervised training: flip and shift; RandAugment and Cutout besides.

The convention is FixMatch's (Sohn et al., NeurIPS 2020), the operations and their strengths are those of torchvision's
``v2.RandAugment`` (Cubuk et al., NeurIPS 2020). Its own class draws from PyTorch's global generator and once for a
whole batch; here every image has its own draws, from the client's generator (``docs/training.md``).
"""

from typing import TYPE_CHECKING, Literal, Self

import torch
from pydantic import Field, model_validator

from models.settings.section import Section
from tasks.client.augmentation import PAD, random_flip, random_shift
from tasks.client.view_operations import GEOMETRIC, OPERATIONS, STEPS, apply_operation, geometric_matrices, warp

if TYPE_CHECKING:
    from torch import Generator, Tensor

Operation = Literal[
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
]


class Views(Section):
    """Weak and strong views of an image."""

    flip: bool = Field(
        True, description="Both views: horizontal flips of half of the images. Off where left and right are labels."
    )
    vertical_flip: float = Field(0.0, ge=0, le=1, description="Both views: share of the images that are turned over.")
    shift: float = Field(0.125, ge=0, lt=0.5, description="Both views: largest shift, as a share of the side.")
    border: Literal["zeros", "edge", "reflect"] = Field(
        "reflect", description="Both views: what a shift uncovers: black, the edge, or the image reflected."
    )
    operations: int = Field(2, ge=0, le=14, description="Strong view: operations of RandAugment, one after the other.")
    choices: tuple[Operation, ...] = Field(
        OPERATIONS,
        description="Strong view: the operations to draw from. Leave out color, posterize, solarize, autocontrast and "
        "equalize where colour tells classes apart, the geometric ones where position does.",
    )
    magnitude: int | None = Field(
        None, ge=0, le=STEPS, description="Strong view: strength of the operations, of 30; null: drawn for each."
    )
    probability: float = Field(
        1.0, ge=0, le=1, description="Strong view: probability that a drawn operation is applied."
    )
    cutout: float = Field(0.5, ge=0, le=1, description="Strong view: side of the grey square, as a share; 0: none.")

    @model_validator(mode="after")
    def _something_to_draw(self) -> Self:
        if self.operations and not self.choices:
            raise ValueError("choices is empty, so no operation can be drawn; set operations to 0")
        return self


def weak_view(images: "Tensor", views: Views, generator: "Generator") -> "Tensor":
    """Return the images flipped and shifted at random, each in its own way.

    Args:
        images: float [B, C, S, S] in 0..1, one or three channels; they are not changed.
        views: The settings.
        generator: Source of the draws, on the images' device.
    """
    if views.flip:
        images = random_flip(images, -1, generator)
    if views.vertical_flip:
        images = random_flip(images, -2, generator, views.vertical_flip)
    reach = round(views.shift * images.shape[-1])
    return random_shift(images, reach, PAD[views.border], generator) if reach else images


def strong_view(images: "Tensor", views: Views, generator: "Generator") -> "Tensor":
    """Return a weak view of the images, then changed by RandAugment and covered by Cutout, each in its own way.

    Args:
        images: float [B, C, S, S] in 0..1, one or three channels; they are not changed.
        views: The settings.
        generator: Source of the draws, on the images' device.
    """
    images = weak_view(images, views, generator)
    for _ in range(views.operations):
        images = _randaugment(images, views, generator)
    return cutout(images, round(views.cutout * images.shape[-1]), generator)


def _randaugment(images: "Tensor", views: Views, generator: "Generator") -> "Tensor":
    """Apply one operation to each image: kind, strength, sign, and whether at all, drawn for each."""
    count, device = len(images), images.device
    chosen = torch.randint(len(views.choices), (count,), generator=generator, device=device)
    steps = torch.randint(STEPS + 1, (count,), generator=generator, device=device)
    if views.magnitude is not None:
        steps = torch.full_like(steps, views.magnitude)
    signs = 1.0 - 2.0 * torch.randint(2, (count,), generator=generator, device=device)
    applied = torch.rand(count, generator=generator, device=device) < views.probability
    kinds = [name if on else "identity" for name, on in zip(_named(views, chosen), applied.tolist(), strict=True)]
    out = images.clone()
    moved = [row for row, kind in enumerate(kinds) if kind in GEOMETRIC]
    if moved:
        rows = torch.tensor(moved, device=device)
        names = [kinds[row] for row in moved]
        out[rows] = warp(out[rows], geometric_matrices(names, steps[rows] / STEPS, signs[rows], images.shape[-1]))
    for name in OPERATIONS:
        found = [row for row, kind in enumerate(kinds) if kind == name]
        if found and name not in GEOMETRIC and name != "identity":
            rows = torch.tensor(found, device=device)
            out[rows] = apply_operation(name, out[rows], steps[rows] / STEPS, signs[rows])
    return out


def _named(views: Views, chosen: "Tensor") -> list[Operation]:
    return [views.choices[number] for number in chosen.tolist()]


def cutout(images: "Tensor", side: int, generator: "Generator") -> "Tensor":
    """Cover a grey square of ``side`` pixels of each image, around a pixel drawn at random (DeVries, Taylor 2017).

    The square may reach beyond the border, so less of the image may be covered.
    """
    if not side:
        return images
    size = images.shape[-1]
    centres = torch.randint(size, (2, len(images), 1), generator=generator, device=images.device)
    first = centres - side // 2
    pixels = torch.arange(size, device=images.device)
    rows, columns = (pixels >= first) & (pixels < first + side)
    mask = rows[:, :, None] & columns[:, None, :]
    return images.masked_fill(mask[:, None], 0.5)
