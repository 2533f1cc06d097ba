"""Stored results of the server's steps: named by the digest of their inputs, found again, opened for reading."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.store import Store, digest_of

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.context import RunContext


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


def find_reference(store: Store, name: str) -> ModelRef | None:
    """Return the finished state of that name if it exists and verifies."""
    if not store.exists(f"{name}.json"):
        return None
    try:
        ref = ModelRef.of(store.read_json(f"{name}.json"))
    except (UserError, KeyError, TypeError, ValueError):  # damaged: compute it again
        return None
    return ref if store.holds(ref) else None


@contextlib.contextmanager
def open_states(store: Store, refs: Sequence[ModelRef]) -> Iterator[list[Any]]:
    """Open states for reading tensor by tensor."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(store.open_state(ref)) for ref in refs]
