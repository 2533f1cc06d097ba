"""Batches of a client's images: their order, and the smallest one that BatchNorm can train on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn


class TrainingError(Exception):
    """A client's training cannot give a usable update, and a retry would fail the same way."""


class BatchError(TrainingError):
    """A BatchNorm layer got one value per channel, so it has no statistics: one image whose last map is 1 x 1."""


def batches(
    count: int, size: int, rng: "np.random.Generator", weights: "np.ndarray | None" = None
) -> "Iterator[np.ndarray]":
    """Yield the index batches of one epoch in random order.

    A last batch of one image joins the batch before it, because BatchNorm cannot train on a single image and no
    image may be left out.

    Args:
        count: Images M; an epoch has M draws.
        size: Images of a batch.
        rng: Source of the order.
        weights: Probability of each image [M], drawn with replacement; ``None``: every image once.
    """
    order = rng.permutation(count) if weights is None else rng.choice(count, count, p=weights)
    cuts = list(range(size, count, size))
    if cuts and count - cuts[-1] == 1:
        cuts.pop()
    start = 0
    for stop in [*cuts, count]:
        yield order[start:stop]
        start = stop


def refuse_single_values(model: "nn.Module") -> None:
    """Make every BatchNorm layer raise a ``BatchError`` before it would train on one value per channel."""
    from torch.nn.modules.batchnorm import _BatchNorm

    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.register_forward_pre_hook(_need_two_values)


def _need_two_values(layer: "nn.Module", inputs: "tuple[Tensor, ...]") -> None:
    (x,) = inputs  # [B, channels, ...]
    if layer.training and x.numel() == x.shape[1]:
        raise BatchError(
            "a batch of one image whose last feature map is 1 x 1 cannot be trained on with BatchNorm; "
            "give clients more images (partition.min_size) or use larger ones (ingest.image_size)"
        )
