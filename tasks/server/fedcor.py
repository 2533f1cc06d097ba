"""FedCor's server tasks: record losses, fit the Gaussian process, select clients (docs/algorithms/fedcor.md).

Tang et al., CVPR 2022, arXiv 2103.13822. The server keeps from round to round: ``factor`` X [rank, n], ``mean`` [n],
``discount`` alpha [n], ``losses`` [n] of the last evaluated model and its ``losses_round``, ``changes`` [E, n] with
their ``rounds`` [E], and ``scale``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.errors import UserError
from tasks.core.randomness import torch_generator
from tasks.core.records import ModelRef
from tasks.core.store import Store
from tasks.data.run_data import load_run_data
from tasks.server.fedcor_gp import covariance, fit, greedy_selection, initial_factor, standard_deviation
from tasks.server.state_rules import cached_state

if TYPE_CHECKING:
    from tasks.core.context import RunContext


def held_out_split(context: "RunContext", clients: Sequence[str], wanted: str) -> str:
    """Return ``val`` or ``train``: ``wanted``, and for ``auto`` val if every client has such images.

    Raises:
        UserError: If ``wanted`` is val and a client has no validation images.
    """
    if wanted == "train":
        return wanted
    _, partition = load_run_data(context)
    without = [client for client in clients if not len(partition.rows(client, "val", "labelled"))]
    if without and wanted == "val":
        raise UserError(
            "clients have no validation images to report their loss on",
            where="method.fedcor.loss_on",
            expected="a partition that gives every client some (partition.local.val)",
            found=f"none at {', '.join(without[:5])}",
            hint="set it to auto or train",
        )
    return "train" if without else "val"


def record_client_losses(
    context: "RunContext", state: ModelRef | None, losses: Sequence[float], round_: int, rank: int, record_change: bool
) -> ModelRef:
    """Record the clients' losses of the received model; in the warm-up also their change in the previous round.

    Args:
        context: The run.
        state: The server's state, ``None`` in the first round.
        losses: One per client in id order; NaN where a client has none.
        round_: The round that starts from this model.
        rank: Rows of X.
        record_change: Whether the previous round belongs to the warm-up.

    Returns:
        The new state.
    """

    def make(store: Store) -> dict[str, Tensor]:
        now = torch.tensor(losses, dtype=torch.float64)
        kept = store.get_state(state) if state else _first_state(context, rank, len(losses))
        if record_change and "losses" in kept and int(kept["losses_round"]) == round_ - 1:
            kept = _with_change(kept, now - kept["losses"], round_ - 1)
        return kept | {"losses": now, "losses_round": torch.tensor(round_)}

    inputs = [state.digest if state else None, list(losses), round_, rank, record_change]
    return cached_state(context, "selection", inputs, make)


def fit_process(
    context: "RunContext", state: ModelRef, losses: Sequence[float] | None, round_: int, options: Mapping[str, Any]
) -> ModelRef:
    """Fit the process, with the change of a probing round if there was one, and reset the discounts to 1.

    Args:
        context: The run.
        state: The server's state.
        losses: The clients' losses after a probing round from the model whose losses are in the state, or None.
        round_: The round.
        options: ``gamma``, ``steps`` and ``lr`` of ``fit``; ``group_size``: records more rounds older than the
            latest are dropped; ``normalise``: records are divided by the warm-up's standard deviation.

    Returns:
        The new state; without any record only the discounts change.
    """

    def make(store: Store) -> dict[str, Tensor]:
        kept = store.get_state(state)
        if losses is not None:
            kept = _with_change(kept, torch.tensor(losses, dtype=torch.float64) - kept["losses"], round_)
        kept["discount"] = torch.ones_like(kept["discount"])
        if "changes" not in kept:
            return kept
        recent = kept["rounds"].max() - kept["rounds"] <= options["group_size"]
        kept["changes"], kept["rounds"] = kept["changes"][recent], kept["rounds"][recent]
        if options["normalise"] and "scale" not in kept:
            kept["scale"] = torch.tensor(standard_deviation(kept["changes"]), dtype=torch.float64)
        changes = kept["changes"] / kept.get("scale", torch.ones((), dtype=torch.float64))
        fit_options = {key: options[key] for key in ("gamma", "steps", "lr")}
        kept["factor"], kept["mean"] = fit(kept["factor"], changes, kept["rounds"], **fit_options)
        return kept

    inputs = [state.digest, None if losses is None else list(losses), round_, dict(options)]
    return cached_state(context, "selection", inputs, make)


def select_clients(
    context: "RunContext", state: ModelRef, sizes: Sequence[int], count: int, beta: float
) -> tuple[list[int], ModelRef]:
    """Return the greedy choice, and the state with the chosen clients' discounts multiplied by beta.

    Args:
        context: The run.
        state: The server's state.
        sizes: Training images of each client in id order.
        count: Number of clients.
        beta: The discount.
    """
    kept = context.open_store().get_state(state)
    fractions = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    chosen = greedy_selection(covariance(kept["factor"]), fractions, kept["discount"], count)
    kept["discount"][chosen] *= beta
    return chosen, cached_state(context, "selection", [state.digest, chosen, beta], lambda _: kept)


def _first_state(context: "RunContext", rank: int, clients: int) -> dict[str, Tensor]:
    return {
        "factor": initial_factor(rank, clients, torch_generator(context.seed, "FedCor factor")),
        "mean": torch.zeros(clients, dtype=torch.float64),
        "discount": torch.ones(clients, dtype=torch.float64),
    }


def _with_change(kept: dict[str, Tensor], change: Tensor, round_: int) -> dict[str, Tensor]:
    """Return the state with one more record, unless a client's change is unknown."""
    if not bool(torch.isfinite(change).all()):
        return kept
    row, number = change[None], torch.tensor([round_])
    if "changes" in kept:
        row, number = torch.cat([kept["changes"], row]), torch.cat([kept["rounds"], number])
    return kept | {"changes": row, "rounds": number}
