"""FedHybrid's server step: participants' mean minus the mean dual of all clients (docs/algorithms/fedhybrid.md)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from models.base_settings import Section
from tasks.core.records import ModelRef
from tasks.server.aggregation import combine, sample_count_weights, weighted_mean
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob, start_of
from tasks.server.state_rules import Excluding, cached_state, open_states, parameter_names

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store
    from tasks.server.aggregators.received import Received

DESCRIPTION = "FedHybrid: the plain mean minus the mean dual of all clients (Niu and Wei, IEEE TSP 2023)"


class Settings(Section):
    """The clients' proximal term."""

    mu: float = Field(gt=0, description="Weight of (mu/2) |x - x_0|^2.")


def next_mean_dual(before: Tensor, x_0: Tensor, values: Sequence[Tensor], mu: float, n: int) -> Tensor:
    """Return (1/n) sum of all clients' y_i after a round, for one parameter.

    A participant's dual has changed by mu (x_0 - x_i), which the server computes from the weights that it sent and
    received; the duals of the others have not changed.

    Args:
        before: The mean dual before the round, float64; 0 in the first round.
        x_0: What the participants started from, same shape.
        values: Their x_i, same shape.
        mu: Weight of the proximal term.
        n: Number of ALL clients. With the number of participants, which may differ from round to round, the sum
            would no longer be that of the duals, and the method would converge to another point.

    Returns:
        float64, same shape.
    """
    deltas = weighted_mean([x_0, *values], [float(len(values)), *[-1.0] * len(values)])
    return before + mu / n * deltas


def corrected_mean(values: Sequence[Tensor], mean_dual: Tensor, mu: float) -> Tensor:
    """Return x_0 <- mean of the participants' x_i - mean dual of all clients / mu, for one parameter; float64."""
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
    """Return the next global model and the next mean dual.

    Args:
        context: The run.
        refs: The participants' weights in client-id order.
        sizes: Their sample counts: buffers have no dual and are weighted by them.
        start: The model that they started from.
        duals: The mean dual of all clients before this round, ``None`` in the first one.
        mu: Weight of the proximal term, above 0.
        n: Number of all clients of the partition.

    Returns:
        References of the model and of the mean dual (float64, trained parameters only).
    """
    names, trained = parameter_names(context), [ref.digest for ref in refs]
    inputs = [trained, start.digest, duals.digest if duals else None, mu, n]
    mean = cached_state(context, "duals", inputs, lambda store: _next_duals(store, names, refs, start, duals, mu, n))

    def next_model(store: "Store") -> dict[str, Tensor]:
        with open_states(store, [mean, *refs]) as (means, *readers):
            buffers = [Excluding(reader, set(names)) for reader in readers]
            state = combine(buffers, sample_count_weights(sizes), weighted_mean, context.bn_policy)
            for name in names:
                values = [reader.get_tensor(name) for reader in readers]
                state[name] = corrected_mean(values, means.get_tensor(name), mu).to(values[0].dtype)
            return state

    return cached_state(context, "hybrid", [trained, list(sizes), mean.digest, mu], next_model), mean


def _next_duals(
    store: "Store",
    names: Sequence[str],
    refs: Sequence[ModelRef],
    start: ModelRef,
    duals: ModelRef | None,
    mu: float,
    n: int,
) -> dict[str, Tensor]:
    """Return ``next_mean_dual`` of every parameter; the arguments are those of ``average_with_duals``."""
    with open_states(store, [start, *refs, *([duals] if duals else [])]) as (sent, *others):
        readers, old = others[: len(refs)], others[len(refs) :]
        out = {}
        for name in names:
            x_0, values = sent.get_tensor(name), [reader.get_tensor(name) for reader in readers]
            before = old[0].get_tensor(name) if old else torch.zeros(x_0.shape, dtype=torch.float64)
            out[name] = next_mean_dual(before, x_0, values, mu, n)
        return out


class MeanDual(Aggregator):
    """Parameters by ``corrected_mean``; the aggregator's own tensors are the mean dual, by the parameters' names.

    ``facts`` are ``clients``, the number of all clients of the partition.
    """

    def __init__(self, settings: Settings) -> None:
        self.mu, self.clients = settings.mu, 0
        self.sizes: list[float] = []

    def weigh(self, received: "Received") -> Mixing:
        """Return equal weights, and keep those of the buffers."""
        self.clients = received.facts["clients"]
        self.sizes = sample_count_weights([update.samples for update in received.updates])
        return received.equal()

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the corrected mean and the next mean dual of a parameter, the mean by sample count of a buffer."""
        if tensor.spec.kind != "parameter":
            return Combined(self.average(replace(tensor, weights=self.sizes)))
        x_0, values = start_of(tensor), tensor.values
        before = tensor.before[""] if tensor.before else torch.zeros(x_0.shape, dtype=torch.float64)
        dual = next_mean_dual(before, x_0, values, self.mu, self.clients)
        return Combined(corrected_mean(values, dual, self.mu), {"": dual})


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return MeanDual(settings)
