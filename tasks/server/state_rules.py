"""What server rules beyond the average have in common: which tensors are trained, and finding what is done."""

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
    """Names of the network's trained parameters, sorted: what a state holds besides buffers."""
    from dataclasses import replace

    from tasks.core.network import build_network

    network = build_network(replace(context, device="cpu"), context.open_store())
    return sorted(name for name, value in network.named_parameters() if value.requires_grad)


def once(
    context: "RunContext",
    kind: str,
    inputs: Sequence[Any],
    make: "Callable[[Store], dict[str, Tensor]]",
    folder: str = "updates",
) -> ModelRef:
    """The tensors that ``make(store)`` returns, stored under the digest of ``inputs``; made only if not there yet.

    Args:
        context: The run.
        kind: First part of the file's name.
        inputs: All that decides the result besides the run's fingerprint, as plain values.
        make: Makes the tensors.
        folder: Where they lie: ``updates`` until the round is saved, ``client_folder(id)`` for a client's own.
    """
    store = context.open_store()
    name = f"{folder}/{kind}-{digest_of(context.fingerprint, *inputs)[:32]}"
    if done := find_reference(store, name):
        return done
    ref = store.put_state(f"{name}.safetensors", make(store))
    store.write_json(f"{name}.json", {"uri": ref.uri, "digest": ref.digest, "bytes": ref.bytes})
    return ref


@contextlib.contextmanager
def opened(store: Store, refs: Sequence[ModelRef]) -> Iterator[list[Any]]:
    """The states, open for reading tensor by tensor."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(store.open_state(ref)) for ref in refs]


def moved(
    start: Any,
    trained: Sequence[Any],
    factors: Sequence[float],
    sizes: Sequence[float],
    parameters: Sequence[str],
    bn_policy: str,
) -> "dict[str, Tensor]":
    """One state: parameters W + sum_i f_i (theta_i - W), buffers by FedAvg's rule (``aggregation.combine``).

    Args:
        start: The state that was sent out, open (``keys()``, ``get_tensor(name)``).
        trained: The clients' states, open, in client-id order.
        factors: f_i of each client; they need not sum to 1.
        sizes: Averaging weights of the buffers, summing to 1.
        parameters: Names that are moved; all others are buffers.
        bn_policy: The rule of section 7 for BatchNorm's statistics.

    Returns:
        Name -> tensor, with the dtypes of ``start``.
    """
    names = set(parameters)
    kept = 1.0 - math.fsum(factors)
    out = combine([Without(reader, names) for reader in trained], sizes, weighted_mean, bn_policy)
    for name in sorted(names):
        before = start.get_tensor(name)
        values = [before, *(reader.get_tensor(name) for reader in trained)]
        out[name] = weighted_mean(values, [kept, *factors]).to(before.dtype)
    return out


class Without:
    """An open state as if the tensors in ``names`` were not in it."""

    def __init__(self, reader: Any, names: "set[str] | Mapping[str, Any]") -> None:
        self._reader, self._names = reader, names

    def keys(self) -> list[str]:
        """The names that are left."""
        return [name for name in self._reader.keys() if name not in self._names]  # noqa: SIM118 - not a mapping

    def get_tensor(self, name: str) -> "Tensor":
        """One tensor."""
        value: Tensor = self._reader.get_tensor(name)
        return value
