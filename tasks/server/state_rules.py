"""Helpers of the server steps: trained parameters, stored results, updates of a state."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.core.records import ModelRef
from tasks.core.store import Store, digest_of
from tasks.server.aggregation import combine, find_reference, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.context import RunContext


def parameter_names(context: "RunContext") -> list[str]:
    """Return the sorted names of the network's trained parameters; all other tensors of a state are buffers."""
    from dataclasses import replace

    from tasks.core.network import build_network

    network = build_network(replace(context, device="cpu"), context.open_store())
    return sorted(name for name, value in network.named_parameters() if value.requires_grad)


def cached_state(
    context: "RunContext",
    kind: str,
    inputs: Sequence[Any],
    make: "Callable[[Store], dict[str, Tensor]]",
    folder: str = "updates",
) -> ModelRef:
    """Return the stored state of these inputs; call ``make(store)`` and store its tensors if there is none yet.

    Args:
        context: The run.
        kind: First part of the file's name.
        inputs: All inputs of the result besides the run's fingerprint, as plain values.
        make: Computes the tensors.
        folder: ``updates`` until the round is saved, ``client_folder(id)`` for a client's private state.
    """
    store = context.open_store()
    name = f"{folder}/{kind}-{digest_of(context.fingerprint, *inputs)[:32]}"
    if done := find_reference(store, name):
        return done
    ref = store.put_state(f"{name}.safetensors", make(store))
    store.write_json(f"{name}.json", {"uri": ref.uri, "digest": ref.digest, "bytes": ref.bytes})
    return ref


@contextlib.contextmanager
def open_states(store: Store, refs: Sequence[ModelRef]) -> Iterator[list[Any]]:
    """Open states for reading tensor by tensor."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(store.open_state(ref)) for ref in refs]


def apply_updates(
    start: Any,
    trained: Sequence[Any],
    coefficients: Sequence[float],
    sizes: Sequence[float],
    parameters: Sequence[str],
    bn_policy: str,
) -> "dict[str, Tensor]":
    """Return parameters W + sum_i f_i (theta_i - W) and buffers averaged as in FedAvg (``aggregation.combine``).

    Args:
        start: The state that was sent out, open (``keys()``, ``get_tensor(name)``).
        trained: The clients' states, open, in client-id order.
        coefficients: f_i of each client; they need not sum to 1.
        sizes: Averaging weights of the buffers, summing to 1.
        parameters: Names of the parameters; all others are buffers.
        bn_policy: The rule for BatchNorm's statistics (docs/algorithms/aggregation.md).

    Returns:
        Name -> tensor, with the dtypes of ``start``.
    """
    names = set(parameters)
    kept = 1.0 - math.fsum(coefficients)
    out = combine([Excluding(reader, names) for reader in trained], sizes, weighted_mean, bn_policy)
    for name in sorted(names):
        before = start.get_tensor(name)
        values = [before, *(reader.get_tensor(name) for reader in trained)]
        out[name] = weighted_mean(values, [kept, *coefficients]).to(before.dtype)
    return out


class Excluding:
    """A view of an open state without the tensors in ``names``."""

    def __init__(self, reader: Any, names: "set[str] | Mapping[str, Any]") -> None:
        self._reader, self._names = reader, names

    def keys(self) -> list[str]:
        """Return the remaining names."""
        return [name for name in self._reader.keys() if name not in self._names]  # noqa: SIM118 - not a mapping

    def get_tensor(self, name: str) -> "Tensor":
        """Return one tensor."""
        value: Tensor = self._reader.get_tensor(name)
        return value
