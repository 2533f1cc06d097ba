"""FMMAN's loss terms, eqs 8, 10 and 11, as pure functions (docs/algorithms/fmman.md).

Shapes: B images, C labels, d width, K prototypes, P trainable values.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity

from models.label_aware.label_graph import cosine_similarity_matrix
from tasks.client.objectives.label_mask.label_states import UNKNOWN


def unknown_label_bce(logits: Tensor, targets: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return eq 10 under one mask: binary cross entropy of the unknown labels only.

    Args:
        logits: [B, C].
        targets: 0/1 [B, C].
        states: s' [B, C].

    Returns:
        Per image the loss summed over its unknown labels [B] (0, with gradient 0, where there are none), and how many
        there are [B].
    """
    unknown = (states == UNKNOWN).float()
    each = binary_cross_entropy_with_logits(logits.float(), targets.float(), reduction="none")
    return (each * unknown).sum(dim=-1), unknown.sum(dim=-1)


def reconstruction_error(target: Tensor, reconstruction: Tensor) -> Tensor:
    """Return eq 8's first term per image: mean over labels of the squared L2 norm, [B, C, d] -> [B]."""
    return (target - reconstruction).square().sum(dim=-1).mean(dim=-1)


def consistency_error(features: Tensor, strength: Tensor) -> Tensor:
    """Return eq 8's second term per image: mean over label pairs of (cosine(F_i, F_j) - edge_ij)^2.

    Args:
        features: F [B, C, d].
        strength: The target of the cosines [B, C, C].

    Returns:
        [B].
    """
    return (cosine_similarity_matrix(features) - strength).square().mean(dim=(-1, -2))


def gaussian_kl(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return the KL divergence of N(mean, deviation^2) to N(0, 1), summed over entries, mean over labels.

    [B, C, d] -> [B]. Not in the paper. The variance is clamped at 1e-12 in the logarithm; deviations may be negative.
    """
    variance = deviation.square()
    each = (mean.square() + variance - 1.0 - variance.clamp(min=1e-12).log()) / 2.0
    return each.sum(dim=-1).mean(dim=-1)


def mean_pair_cosine(features: Tensor) -> Tensor:
    """Return the mean cosine of two different labels' features, [B, C, d] -> [B]; near 1 where labels have merged."""
    classes = features.shape[1]
    cosines = cosine_similarity_matrix(features)
    others = cosines.sum(dim=(-1, -2)) - cosines.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return others / max(1, classes * (classes - 1))


def prototype_contrast(z_local: Tensor, z_prototypes: Sequence[Tensor]) -> Tensor:
    """Return eq 11's first term as printed: every prototype in turn is the positive; no temperature.

    sum_i -log softmax(c)_i with c_i = cosine(z_local, z_i). It is 0 for K = 1, has zero gradient where all
    prototypes are equal, and has its minimum K ln K where all cosines are equal.

    Args:
        z_local: Embeddings of the local model [B, d].
        z_prototypes: K tensors [B, d], without gradient.

    Returns:
        Per image [B].
    """
    cosines = torch.stack([cosine_similarity(z_local, z, dim=-1) for z in z_prototypes], dim=-1)  # [B, K]
    return -torch.log_softmax(cosines, dim=-1).sum(dim=-1)


class SquaredDistance:
    """Eq 11's second term: sum over i of |theta - theta_i|^2 to fixed reference weights theta_i.

    Computed as K |theta - mean|^2 + a constant, equal to the sum and K times cheaper. Its gradient
    2 K (theta - mean) points away from the prototypes' unweighted mean.

    Args:
        references: For each prototype its trainable tensors, in the model's order.
        multiplicity: How often each prototype counts.
    """

    def __init__(self, references: Sequence[Sequence[Tensor]], multiplicity: Sequence[int]) -> None:
        self.count = sum(multiplicity)
        self.mean = [
            sum((c * t.detach() for c, t in zip(multiplicity, tensors, strict=True)), torch.zeros_like(tensors[0]))
            / self.count
            for tensors in zip(*references, strict=True)
        ]
        self.constant = sum(
            c * (t.detach() - m).square().sum()
            for c, tensors in zip(multiplicity, references, strict=True)
            for t, m in zip(tensors, self.mean, strict=True)
        )

    def __call__(self, parameters: Sequence[Tensor]) -> Tensor:
        """Return the term for the current parameters, a scalar with gradient."""
        flat = torch.cat([(p - m).reshape(-1) for p, m in zip(parameters, self.mean, strict=True)])
        return self.count * flat.square().sum() + self.constant
