"""The states and frozen networks that this process used last: clients of a round start from the same model."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from tasks.core.model_ref import ModelRef

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.store import Store

Value = TypeVar("Value")
LIMIT = 64 << 20  # bytes; larger models train longer than their file takes to read


class LastUsed(Generic[Value]):
    """Values by key, at most ``LIMIT`` bytes of them; the one that was not used for longest goes first."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, tuple[int, Value]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, size: int, make: Callable[[], Value]) -> Value:
        """Return the value of a key, which is made if it is not here; of ``size`` bytes."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][1]
        value = make()
        with self._lock:
            self._values[key] = size, value
            while sum(held for held, _ in self._values.values()) > LIMIT:
                self._values.popitem(last=False)
        return value


_states: "LastUsed[dict[str, Tensor]]" = LastUsed()


def file_key(store: "Store", ref: ModelRef) -> Hashable | None:
    """Return what stays equal while a reference's file does; ``None``: it cannot be known, or the file is large."""
    if not store.is_local or ref.bytes > LIMIT:
        return None
    return store.root, ref.uri, ref.digest, store.stamp(ref.uri)


def read_state(store: "Store", ref: ModelRef) -> "dict[str, Tensor]":
    """Return the tensors of a reference, from memory if this process has read the file and it has not changed.

    The tensors are shared: callers copy them.

    Raises:
        UserError: As ``Store.get_state``.
    """
    key = file_key(store, ref)
    return store.get_state(ref) if key is None else _states.get(key, ref.bytes, lambda: store.get_state(ref))
