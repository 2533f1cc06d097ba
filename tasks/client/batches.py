"""Batches of a client's images: order, conversion and augmentation."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from tasks.core.train_settings import TrainSettings


def batches(count: int, size: int, rng: "np.random.Generator") -> "Iterator[np.ndarray]":
    """Index batches of one epoch in random order.

    A last batch of one joins the batch before it, because BatchNorm cannot train on a single image and no
    image may be left out.
    """
    order = rng.permutation(count)
    cuts = list(range(size, count, size))
    if cuts and count - cuts[-1] == 1:
        cuts.pop()
    start = 0
    for stop in [*cuts, count]:
        yield order[start:stop]
        start = stop


def augment(images: "Tensor", settings: "TrainSettings", generator: "torch.Generator") -> "Tensor":
    """Random flips and shifts of a batch [B, 3, S, S], each image its own draw."""
    import torch
    from torch.nn.functional import pad

    if settings.flip:
        flipped = torch.rand(len(images), generator=generator, device=images.device) < 0.5
        images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
    if settings.shift:
        size, reach = images.shape[-1], settings.shift
        wide = pad(images, (reach,) * 4, mode="replicate")
        tops = torch.randint(0, 2 * reach + 1, (2, len(images)), generator=generator, device=images.device).tolist()
        images = torch.stack(
            [image[:, t : t + size, left : left + size] for image, t, left in zip(wide, *tops, strict=True)]
        )
    return images
