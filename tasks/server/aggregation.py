"""Averaging of client models: weights (FMMAN's eqs 14 and 15), the mean, BatchNorm statistics.

Pure functions of numbers and tensors; the task that applies them is ``tasks.server.aggregate``. See
docs/algorithms/aggregation.md.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from models.errors import UserError


def sample_count_weights(sizes: Sequence[int]) -> list[float]:
    """Return M_i / sum M: FedAvg's weights, and FMMAN's eq 14 inside a cluster."""
    total = sum(sizes)
    if total <= 0 or min(sizes) < 0:
        raise UserError("no client has training images", where="aggregation", found=list(sizes))
    return [size / total for size in sizes]


def loss_weights(
    losses: Sequence[float], sizes: Sequence[int], mode: Literal["loss_size", "size", "loss"] = "loss_size"
) -> tuple[list[float], str]:
    """Return FMMAN's eq 15, normalised: loss_i M_i / sum_j loss_j M_j. A higher loss gives a larger weight.

    As printed the products sum to about 1/N and would shrink the model.

    Args:
        losses: Mean loss per counted label of each client, never a sum over its images.
        sizes: Training images M_i.
        mode: ``size`` ignores the losses (FedAvg), ``loss`` the sample counts.

    Returns:
        The weights, which sum to 1, and a note: empty, or why sample counts alone were used.
    """
    if mode == "size":
        return sample_count_weights(sizes), ""
    products = [loss * (size if mode == "loss_size" else 1) for loss, size in zip(losses, sizes, strict=True)]
    total = sum(products)
    if any(not math.isfinite(loss) or loss < 0 for loss in losses) or not (math.isfinite(total) and total > 0):
        return sample_count_weights(
            sizes
        ), f"losses {list(losses)} cannot be weights; models were weighted by sample count"
    return [product / total for product in products], ""


def weighted_mean(values: Iterable[Tensor], weights: Iterable[float]) -> Tensor:
    """Return sum_i a_i v_i in float64; the caller casts back. Same shape as each value.

    Args:
        values: At least one; each is used once and then dropped, so that they may be read one by one.
        weights: As many.
    """
    total: Tensor | None = None
    for value, weight in zip(values, weights, strict=True):
        total = torch.zeros(value.shape, dtype=torch.float64) if total is None else total
        total.add_(value.to(torch.float64), alpha=weight)
    assert total is not None
    return total


def moved(start: Tensor, values: Sequence[Tensor], coefficients: Sequence[float]) -> Tensor:
    """Return W + sum_i f_i (theta_i - W) in float64; the coefficients need not sum to 1. Same shape as each value."""
    return weighted_mean([start, *values], [1.0 - math.fsum(coefficients), *coefficients])


def check_weights(weights: Sequence[float]) -> None:
    """Refuse averaging weights that are negative or do not sum to 1 within 1e-9."""
    if not (abs(math.fsum(weights) - 1.0) <= 1e-9 and min(weights) >= 0):  # so written, NaN is refused too
        raise UserError("averaging weights must sum to 1", where="aggregation", found=list(weights))


def all_finite(values: Tensor) -> bool:
    """Return whether all values are finite; a finite sum, which is quick to make, says so."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def pooled_variance(means: Sequence[Tensor], variances: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the variance of the mixture of the clients' distributions (law of total variance), float64."""
    mean = weighted_mean(means, weights)
    second = weighted_mean([v.double() + m.double().square() for v, m in zip(variances, means, strict=True)], weights)
    return (second - mean.square()).clamp_(min=0)
