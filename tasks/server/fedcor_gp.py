"""FedCor's Gaussian process over the clients and its greedy choice, as pure functions (docs/algorithms/fedcor.md).

The n clients' losses change together in one round: change ~ N(mean, Sigma) with Sigma = X^T X + 0.01^2 I. Everything is
float64: a covariance of rank 15 plus 1e-4 I is too ill-conditioned for float32's Cholesky factorisation.
"""

import math

import torch
from torch import Tensor

from models.errors import UserError

NOISE = 0.01  # standard deviation of the part that clients do not share
JITTER = 1e-10  # of the mean variance; added for the factorisation only


def initial_factor(rank: int, clients: int, generator: torch.Generator) -> Tensor:
    """Return X [rank, n] before any record: entries N(0, 1) / sqrt(rank), so that variances are about 1."""
    return torch.randn(rank, clients, generator=generator, dtype=torch.float64) / math.sqrt(rank)


def covariance(factor: Tensor) -> Tensor:
    """Return Sigma = X^T X + 0.01^2 I of X [rank, n]: [n, n], linear kernel, not normalised."""
    return factor.T @ factor + NOISE**2 * torch.eye(factor.shape[1], dtype=factor.dtype)


def record_weights(rounds: Tensor, gamma: float) -> Tensor:
    """Return gamma^(now - e) of records of the rounds e [E], where now is the latest of them."""
    return torch.as_tensor(gamma, dtype=torch.float64) ** (rounds.max() - rounds)


def weighted_nll(factor: Tensor, mean: Tensor, changes: Tensor, weights: Tensor) -> Tensor:
    """Return sum_e w_e (-log N(change_e; mean, Sigma)), which ``fit`` minimises.

    Args:
        factor: X [rank, n].
        mean: [n].
        changes: [E, n].
        weights: [E].
    """
    sigma = covariance(factor)
    jitter = JITTER * sigma.diagonal().mean().detach() * torch.eye(len(sigma), dtype=sigma.dtype)
    root = torch.linalg.cholesky(sigma + jitter)
    white = torch.linalg.solve_triangular(root, (changes - mean).T, upper=False)  # [n, E]
    log_density = -0.5 * white.square().sum(dim=0) - root.diagonal().log().sum() - len(mean) / 2 * math.log(2 * math.pi)
    return -(weights * log_density).sum()


def fit(
    factor: Tensor, changes: Tensor, rounds: Tensor, *, gamma: float, steps: int, lr: float
) -> tuple[Tensor, Tensor]:
    """Fit the Gaussian process to its records: the mean in closed form, X by Adam.

    Args:
        factor: Initial X [rank, n].
        changes: Loss changes [E, n], E >= 1.
        rounds: The round of each record, int64 [E].
        gamma: Weight of a record that is one round older.
        steps: Adam steps.
        lr: Adam's rate.

    Returns:
        The new X [rank, n] and mean [n].
    """
    weights = record_weights(rounds, gamma)
    mean = (weights[:, None] * changes).sum(dim=0) / weights.sum()
    trained = factor.detach().clone().requires_grad_(True)
    adam = torch.optim.Adam([trained], lr)
    for _ in range(steps):
        adam.zero_grad()
        try:
            weighted_nll(trained, mean, changes, weights).backward()
        except torch.linalg.LinAlgError as error:
            found, hint = str(error).split(".")[0], "a smaller method.fedcor.gp_lr"
            raise UserError(
                "FedCor's Gaussian process cannot be fitted", where="method.fedcor", found=found, hint=hint
            ) from error
        adam.step()
    return trained.detach(), mean


def condition(sigma: Tensor, k: int) -> Tensor:
    """Return the covariance [n, n] given client k's change: Sigma - Sigma[:, k] Sigma[k, :] / Sigma_kk."""
    return sigma - torch.outer(sigma[:, k], sigma[k, :]) / sigma[k, k]


def greedy_selection(sigma: Tensor, fractions: Tensor, discount: Tensor, count: int) -> list[int]:
    """Return the clients to train: repeatedly the one expected to lower the loss of the remaining clients the most.

    score_k = alpha_k / sqrt(Sigma_kk) * sum_{i not chosen} p_i Sigma_ik; then Sigma is conditioned on k. The predicted
    mean is not needed. Ties go to the first client.

    Args:
        sigma: [n, n].
        fractions: p_i = M_i / sum M, [n].
        discount: alpha, [n].
        count: Number of clients, at most n.

    Returns:
        ``count`` different indices in the order of choice.
    """
    left, chosen = list(range(len(sigma))), []
    for _ in range(count):
        deviations = sigma.diagonal()[left].clamp_min(NOISE**2).sqrt()  # below the noise only by rounding
        scores = discount[left] / deviations * (fractions[left] @ sigma[left][:, left])
        k = left[max(range(len(left)), key=lambda place: (float(scores[place]), -place))]
        sigma = condition(sigma, k)
        chosen.append(k)
        left.remove(k)
    return chosen


def standard_deviation(changes: Tensor) -> float:
    """Return the standard deviation of changes [E, n] around each client's mean; 1 if it is 0."""
    value = float((changes - changes.mean(dim=0)).square().mean().sqrt())
    return value if value > 0 else 1.0
