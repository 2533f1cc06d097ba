"""FedCor's choice of clients (Tang et al., CVPR 2022, arXiv 2103.13822; specification 4.5).

A Gaussian process over the n clients models how their losses change together in one round: change ~ N(mean, Sigma)
with Sigma = X^T X + 0.01^2 I. Chosen are the clients whose training should lower the loss of all the most. Everything
is float64: a covariance of rank 15 plus 1e-4 I is too ill-conditioned for float32's Cholesky.

The server keeps, from round to round: ``factor`` X [rank, n], ``mean`` [n], ``discount`` alpha [n], ``losses`` [n] of
the last model scored and its ``losses_round``, ``changes`` [E, n] with their ``rounds`` [E], and ``scale``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.store import Store
from tasks.data.run_data import load_run_data
from tasks.server.state_rules import once

if TYPE_CHECKING:
    from tasks.core.context import RunContext

NOISE = 0.01  # standard deviation of what clients do not share
JITTER = 1e-10  # of the mean variance; added for the factorisation only


def start_factor(rank: int, clients: int, generator: torch.Generator) -> Tensor:
    """X [rank, n] before any record: entries N(0, 1) / sqrt(rank), so that variances are about 1."""
    return torch.randn(rank, clients, generator=generator, dtype=torch.float64) / math.sqrt(rank)


def covariance(factor: Tensor) -> Tensor:
    """Sigma = X^T X + 0.01^2 I of X [rank, n]: [n, n], linear kernel, not normalised."""
    return factor.T @ factor + NOISE**2 * torch.eye(factor.shape[1], dtype=factor.dtype)


def record_weights(rounds: Tensor, gamma: float) -> Tensor:
    """gamma^(now - e) of records of the rounds e [E], where now is the latest of them."""
    return torch.as_tensor(gamma, dtype=torch.float64) ** (rounds.max() - rounds)


def weighted_nll(factor: Tensor, mean: Tensor, changes: Tensor, weights: Tensor) -> Tensor:
    """sum_e w_e (-log N(change_e; mean, Sigma)), what training minimises.

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
    """Trains the process on its records: the mean is their weighted mean, X follows by Adam.

    Args:
        factor: X [rank, n] to go on from.
        changes: Loss changes [E, n], E >= 1.
        rounds: The round of each record, int64 [E].
        gamma: How fast old records fade.
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
                "FedCor's process cannot be trained", where="method.fedcor", found=found, hint=hint
            ) from error
        adam.step()
    return trained.detach(), mean


def condition(sigma: Tensor, k: int) -> Tensor:
    """The covariance [n, n] once client k's change is known: Sigma - Sigma[:, k] Sigma[k, :] / Sigma_kk."""
    return sigma - torch.outer(sigma[:, k], sigma[k, :]) / sigma[k, k]


def greedy(sigma: Tensor, shares: Tensor, discount: Tensor, count: int) -> list[int]:
    """The clients to train, one after the other the one that is expected to lower the loss of those left the most.

    score_k = alpha_k / sqrt(Sigma_kk) * sum_{i not chosen} p_i Sigma_ik; then Sigma is conditioned on k. The predicted
    mean is not needed. Of equal scores the first client's counts.

    Args:
        sigma: [n, n].
        shares: p_i = M_i / sum M, [n].
        discount: alpha, [n].
        count: How many, at most n.

    Returns:
        ``count`` different indices in the order of choice.
    """
    left, chosen = list(range(len(sigma))), []
    for _ in range(count):
        deviations = sigma.diagonal()[left].clamp_min(NOISE**2).sqrt()  # never below the noise but for rounding
        scores = discount[left] / deviations * (shares[left] @ sigma[left][:, left])
        k = left[max(range(len(left)), key=lambda place: (float(scores[place]), -place))]
        sigma = condition(sigma, k)
        chosen.append(k)
        left.remove(k)
    return chosen


def deviation(changes: Tensor) -> float:
    """Standard deviation of changes [E, n] around each client's mean; 1 where there is none."""
    value = float((changes - changes.mean(dim=0)).square().mean().sqrt())
    return value if value > 0 else 1.0


def held_out(context: "RunContext", clients: Sequence[str], wanted: str) -> str:
    """``val`` or ``train``: what ``wanted`` says, and for ``auto`` val where every client holds such images.

    Raises:
        UserError: ``val`` is wanted, and a client has none.
    """
    if wanted == "train":
        return wanted
    _, held = load_run_data(context)
    without = [client for client in clients if not len(held.rows(client, "val", "labelled"))]
    if without and wanted == "val":
        raise UserError(
            "clients hold no validation images to report their loss on",
            where="method.fedcor.loss_on",
            expected="a partition that gives every client some (partition.local.val)",
            found=f"none at {', '.join(without[:5])}",
            hint="set it to auto or train",
        )
    return "train" if without else "val"


def note_losses(
    context: "RunContext", state: ModelRef | None, losses: Sequence[float], round_: int, rank: int, keep_change: bool
) -> ModelRef:
    """Keeps the losses of the model that a round starts from; in the warm-up also their change in the round before.

    Args:
        context: The run.
        state: The server's state, ``None`` in the first round.
        losses: One per client in id order; NaN where a client has none.
        round_: The round that starts from this model.
        rank: Rows of X.
        keep_change: Whether the round before was one of the warm-up.

    Returns:
        The new state.
    """

    def make(store: Store) -> dict[str, Tensor]:
        now = torch.tensor(losses, dtype=torch.float64)
        held = store.get_state(state) if state else _first_state(context, rank, len(losses))
        if keep_change and "losses" in held and int(held["losses_round"]) == round_ - 1:
            held = _with_change(held, now - held["losses"], round_ - 1)
        return held | {"losses": now, "losses_round": torch.tensor(round_)}

    inputs = [state.digest if state else None, list(losses), round_, rank, keep_change]
    return once(context, "selection", inputs, make)


def learn(
    context: "RunContext", state: ModelRef, losses: Sequence[float] | None, round_: int, how: Mapping[str, Any]
) -> ModelRef:
    """Trains the process, after taking up a throw-away round's change if there was one; the discounts are 1 again.

    Args:
        context: The run.
        state: The server's state.
        losses: The clients' losses after a throw-away round from the model whose losses are in the state, or None.
        round_: The round.
        how: ``gamma``, ``steps`` and ``lr`` of ``fit``; ``group_size``: records more rounds older than the latest
            are dropped; ``normalise``: records are divided by the deviation of those of the warm-up.

    Returns:
        The new state; without any record only the discounts change.
    """

    def make(store: Store) -> dict[str, Tensor]:
        held = store.get_state(state)
        if losses is not None:
            held = _with_change(held, torch.tensor(losses, dtype=torch.float64) - held["losses"], round_)
        held["discount"] = torch.ones_like(held["discount"])
        if "changes" not in held:
            return held
        young = held["rounds"].max() - held["rounds"] <= how["group_size"]
        held["changes"], held["rounds"] = held["changes"][young], held["rounds"][young]
        if how["normalise"] and "scale" not in held:
            held["scale"] = torch.tensor(deviation(held["changes"]), dtype=torch.float64)
        changes = held["changes"] / held.get("scale", torch.ones((), dtype=torch.float64))
        how_to_fit = {key: how[key] for key in ("gamma", "steps", "lr")}
        held["factor"], held["mean"] = fit(held["factor"], changes, held["rounds"], **how_to_fit)
        return held

    inputs = [state.digest, None if losses is None else list(losses), round_, dict(how)]
    return once(context, "selection", inputs, make)


def choose(
    context: "RunContext", state: ModelRef, sizes: Sequence[int], count: int, beta: float
) -> tuple[list[int], ModelRef]:
    """The greedy choice, and the state with the chosen clients' discounts multiplied by beta.

    Args:
        context: The run.
        state: The server's state.
        sizes: Training images of each client in id order.
        count: How many clients.
        beta: The discount.
    """
    held = context.open_store().get_state(state)
    shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    chosen = greedy(covariance(held["factor"]), shares, held["discount"], count)
    held["discount"][chosen] *= beta
    return chosen, once(context, "selection", [state.digest, chosen, beta], lambda _: held)


def _first_state(context: "RunContext", rank: int, clients: int) -> dict[str, Tensor]:
    from tasks.core.randomness import torch_generator

    return {
        "factor": start_factor(rank, clients, torch_generator(context.seed, "FedCor factor")),
        "mean": torch.zeros(clients, dtype=torch.float64),
        "discount": torch.ones(clients, dtype=torch.float64),
    }


def _with_change(held: dict[str, Tensor], change: Tensor, round_: int) -> dict[str, Tensor]:
    """The state with one more record; a change that is not known for every client is no record."""
    if not bool(torch.isfinite(change).all()):
        return held
    row, number = change[None], torch.tensor([round_])
    if "changes" in held:
        row, number = torch.cat([held["changes"], row]), torch.cat([held["rounds"], number])
    return held | {"changes": row, "rounds": number}
