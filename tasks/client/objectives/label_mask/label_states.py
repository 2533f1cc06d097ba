"""Label states: C-Tran's random known subset, and FMMAN's uncertainty mask (eq 2).

Shapes: B images of a batch, C labels. States are int64: -1 unknown, 0 known absent, 1 known present.
"""

import math

import torch
from torch import Tensor

UNKNOWN = -1


def draw_known_states(targets: Tensor, generator: torch.Generator, known_share: float = 0.75) -> Tensor:
    """Return states with a random subset of each image's labels known and the rest unknown.

    Per image n is uniform on 0..floor(known_share * C); n labels drawn without replacement keep their true
    value (C-Tran's and FedLGT's training rule).

    Args:
        targets: 0/1 labels [B, C].
        generator: Source of the random numbers, on the targets' device.
        known_share: Largest share of labels that may be known.

    Returns:
        States [B, C].
    """
    batch, classes = targets.shape
    max_known = math.floor(known_share * classes)
    known = torch.randint(0, max_known + 1, (batch, 1), generator=generator, device=targets.device)
    order = torch.rand((batch, classes), generator=generator, device=targets.device).argsort(dim=1)
    rank = order.argsort(dim=1)  # [B, C]: place of each label in a random order
    return torch.where(rank < known, targets.long(), torch.full_like(targets, UNKNOWN, dtype=torch.long))


def random_states(targets: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random 0 or 1 for every label, unrelated to the truth: the paper's parenthesis taken literally."""
    return torch.randint(0, 2, targets.shape, generator=generator, device=targets.device)


def pseudo_states(probabilities: Tensor, tau: float, eps: float) -> Tensor:
    """Return states from the model's own predictions: 1 above tau + eps, 0 below tau - eps, else unknown. [B, C]."""
    states = torch.full_like(probabilities, UNKNOWN, dtype=torch.long)
    states[probabilities > tau + eps] = 1
    states[probabilities < tau - eps] = 0
    return states


def uncertain(probabilities: Tensor, tau: float, eps: float, band: str = "open") -> Tensor:
    """Return eq 2's condition, bool [B, C]: |p - tau| < eps; with ``closed`` tau - eps <= p <= tau + eps (FedLGT).

    (Eq 2 is printed with tau - eps on both sides, an empty interval.)
    """
    if band == "closed":
        return (probabilities >= tau - eps) & (probabilities <= tau + eps)
    assert band == "open", band
    return (probabilities - tau).abs() < eps


def related_labels(label_embeddings: Tensor, targets: Tensor, rule: str, k: int = 2, rho: float = 0.5) -> Tensor:
    """Return which labels become unknown together with an uncertain one (docs/algorithms/fmman.md).

    Args:
        label_embeddings: Frozen label embeddings [C, d], unit rows.
        targets: The client's training labels [M_i, C]; used by ``cooccur`` only.
        rule: ``topk``, ``zscore`` or ``cooccur``.
        k: How many labels follow one (topk).
        rho: Smallest share of a label's images that hold the other (cooccur).

    Returns:
        bool [C, C]; row c marks the labels that follow label c. The diagonal is False.
    """
    classes = label_embeddings.shape[0]
    related = torch.zeros((classes, classes), dtype=torch.bool, device=label_embeddings.device)
    off_diagonal = ~torch.eye(classes, dtype=torch.bool, device=label_embeddings.device)
    similarity = label_embeddings @ label_embeddings.T
    if rule == "topk":
        count = min(k, classes - 1)
        ranked = similarity.masked_fill(~off_diagonal, -torch.inf).topk(count, dim=1).indices
        related.scatter_(1, ranked, True)
    elif rule == "zscore":
        others = similarity.masked_fill(~off_diagonal, torch.nan)
        mean = others.nanmean(dim=1, keepdim=True)
        deviation = (others - mean).square().nanmean(dim=1, keepdim=True).sqrt()
        related = similarity > mean + deviation
    elif rule == "cooccur":
        counts = targets.float().T @ targets.float()  # [C, C]
        share = counts / counts.diagonal().clamp(min=1).unsqueeze(1)  # P(j | c)
        related = (share >= rho).to(label_embeddings.device)
    return related & off_diagonal


def mask_uncertain(
    states: Tensor, probabilities: Tensor, related: Tensor | None, tau: float, eps: float, band: str = "open"
) -> Tensor:
    """Apply eq 2 to every image of the batch: uncertain labels and those related to them become unknown.

    Args:
        states: Base states [B, C].
        probabilities: One model's predictions with all labels unknown [B, C].
        related: bool [C, C] from ``related_labels``; None where no label follows another.
        tau: Threshold.
        eps: Half-width of the uncertain band.
        band: Whether the band is ``open`` or ``closed`` at its ends.

    Returns:
        States s' [B, C].
    """
    unsure = uncertain(probabilities, tau, eps, band)
    if related is not None:
        unsure = unsure | ((unsure.float() @ related.float()) > 0)  # related to an uncertain label
    return torch.where(unsure, torch.full_like(states, UNKNOWN), states)
