"""The states that this process read last: clients of a round start from the same model."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from tasks.core.model_ref import ModelRef

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.store import Store

LIMIT = 64 << 20  # bytes; larger models train longer than their file takes to read
_States = OrderedDict[tuple[object, ...], tuple[int, "dict[str, Tensor]"]]
_states: _States = OrderedDict()
_lock = threading.Lock()


def read_state(store: "Store", ref: ModelRef) -> "dict[str, Tensor]":
    """Return the tensors of a reference, from memory if this process has read the file and it has not changed.

    The tensors are shared: callers copy them.

    Raises:
        UserError: As ``Store.get_state``.
    """
    if not store.is_local or ref.bytes > LIMIT:
        return store.get_state(ref)
    key = (store.root, ref.uri, ref.digest, *store.stamp(ref.uri))
    with _lock:
        if key in _states:
            _states.move_to_end(key)
            return _states[key][1]
    state = store.get_state(ref)
    with _lock:
        _states[key] = ref.bytes, state
        while sum(size for size, _ in _states.values()) > LIMIT:
            _states.popitem(last=False)
    return state
