"""Weights of classes, from the numbers of a client's images, for data in which some classes are rare."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.errors import UserError


def inverse_weights(counts: Tensor) -> Tensor:
    """Return weights proportional to 1 / n_c, with mean 1 over the images: scikit-learn's ``balanced``.

    Args:
        counts: Images per class [C].

    Returns:
        n / (K n_c) for the K classes that have images [C]; 0 for the others.
    """
    return _normalised(torch.where(counts > 0, 1.0 / counts.clamp(min=1), 0.0), counts)


def effective_number_weights(counts: Tensor, beta: float) -> Tensor:
    """Return weights proportional to (1 - beta) / (1 - beta^n_c), with mean 1 over the images.

    Cui et al., "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019, eq 2 and section 3.3. With
    beta = 0 all classes weigh the same; towards 1 the weights become those of ``inverse_weights``.

    Args:
        counts: Images per class [C].
        beta: In [0, 1).

    Returns:
        Weights [C]; 0 for classes without images.
    """
    n = counts.double()
    effective = (1.0 - beta**n) / (1.0 - beta)
    return _normalised(torch.where(n > 0, 1.0 / effective.clamp(min=1.0), 0.0), n)


def positive_weights(targets: Tensor) -> Tensor:
    """Return absent / present images for each label [C], as PyTorch's ``pos_weight``; 1 for a label without images.

    Args:
        targets: 0/1 [M, C].
    """
    present = targets.double().sum(dim=0)
    return torch.where(present > 0, (len(targets) - present) / present.clamp(min=1), 1.0).float()


def given_weights(values: Sequence[float], classes: int, where: str) -> Tensor:
    """Return weights that the settings list, float32 [C].

    Raises:
        UserError: If there is not one for each class.
    """
    check_given(values, classes, where)
    return torch.tensor(values, dtype=torch.float32)


def check_given(values: object, classes: int, where: str) -> None:
    """Refuse a list of weights that has not one for each class; anything else is accepted.

    Raises:
        UserError: If it has another length.
    """
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values) != classes:
        raise UserError(
            "not one weight for each class", where=where, expected=f"{classes} numbers", found=f"{len(values)}"
        )


def _normalised(weights: Tensor, counts: Tensor) -> Tensor:
    """Scale weights [C] to mean 1 over the images, float32."""
    counts = counts.double()
    return (weights.double() * counts.sum() / (weights.double() * counts).sum().clamp(min=1e-300)).float()
