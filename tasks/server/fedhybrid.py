"""FedHybrid's server step: the mean of the participants, moved by the mean dual of all clients (specification 4.6)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tasks.core.records import ModelRef
from tasks.server.aggregation import combine, size_weights, weighted_mean
from tasks.server.state_rules import Without, once, opened, parameter_names

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store


def next_mean_dual(before: Tensor, x_0: Tensor, values: Sequence[Tensor], mu: float, n: int) -> Tensor:
    """(1/n) sum of all clients' y_i after a round, for one parameter.

    A participant's dual has changed by mu (x_0 - x_i), which the server knows from what it sent and what came back;
    those of the others have not changed.

    Args:
        before: The mean dual before the round, float64; 0 in the first round.
        x_0: What the participants started from, same shape.
        values: Their x_i, same shape.
        mu: Weight of the proximal term.
        n: Number of ALL clients. With the number of participants, which may differ from round to round, the sum
            would no longer be that of the duals, and the method would end elsewhere.

    Returns:
        float64, same shape.
    """
    moves = weighted_mean([x_0, *values], [float(len(values)), *[-1.0] * len(values)])
    return before + mu / n * moves


def corrected_mean(values: Sequence[Tensor], mean_dual: Tensor, mu: float) -> Tensor:
    """x_0 <- mean of the participants' x_i - mean dual of all clients / mu, for one parameter; float64."""
    return weighted_mean(values, [1 / len(values)] * len(values)) - mean_dual / mu


def average_with_duals(
    context: "RunContext",
    refs: Sequence[ModelRef],
    sizes: Sequence[int],
    start: ModelRef,
    duals: ModelRef | None,
    mu: float,
    n: int,
) -> tuple[ModelRef, ModelRef]:
    """The next global model and the next mean dual; finished ones are returned if they are there.

    Args:
        context: The run.
        refs: The participants' weights in client-id order.
        sizes: Their image counts: buffers have no dual and are averaged by size.
        start: The model that they started from.
        duals: The mean dual of all clients before this round, ``None`` in the first one.
        mu: Weight of the proximal term, above 0.
        n: Number of all clients of the partition.

    Returns:
        References of the model and of the mean dual (float64, trained parameters only).
    """
    names, trained = parameter_names(context), [ref.digest for ref in refs]
    inputs = [trained, start.digest, duals.digest if duals else None, mu, n]
    mean = once(context, "duals", inputs, lambda store: _next_duals(store, names, refs, start, duals, mu, n))

    def next_model(store: "Store") -> dict[str, Tensor]:
        with opened(store, [mean, *refs]) as (means, *readers):
            buffers = [Without(reader, set(names)) for reader in readers]
            state = combine(buffers, size_weights(sizes), weighted_mean, context.bn_policy)
            for name in names:
                values = [reader.get_tensor(name) for reader in readers]
                state[name] = corrected_mean(values, means.get_tensor(name), mu).to(values[0].dtype)
            return state

    return once(context, "hybrid", [trained, list(sizes), mean.digest, mu], next_model), mean


def _next_duals(
    store: "Store",
    names: Sequence[str],
    refs: Sequence[ModelRef],
    start: ModelRef,
    duals: ModelRef | None,
    mu: float,
    n: int,
) -> dict[str, Tensor]:
    """``next_mean_dual`` of every parameter; the arguments are those of ``average_with_duals``."""
    with opened(store, [start, *refs, *([duals] if duals else [])]) as (sent, *others):
        readers, old = others[: len(refs)], others[len(refs) :]
        out = {}
        for name in names:
            x_0, values = sent.get_tensor(name), [reader.get_tensor(name) for reader in readers]
            before = old[0].get_tensor(name) if old else torch.zeros(x_0.shape, dtype=torch.float64)
            out[name] = next_mean_dual(before, x_0, values, mu, n)
        return out
