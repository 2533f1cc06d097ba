"""A client's own model as one set of tensors, for export."""

from typing import TYPE_CHECKING

from tasks.core.network import personal_tensors
from tasks.core.round_state import RoundState
from tasks.core.store import Store

if TYPE_CHECKING:
    from torch import Tensor


def own_tensors(store: Store, state: RoundState, client: str) -> "dict[str, Tensor]":
    """Return the tensors of a client's model: those of ``state.own_model``, replaced by the client's own ones.

    Args:
        store: The run's store.
        state: The state of the round.
        client: The client.

    Raises:
        UserError: If the method keeps no model of this client, or a file is gone.
    """
    ref, overlays = state.own_model(client)
    tensors = store.get_state(ref)
    for overlay in overlays:
        tensors |= personal_tensors(store, overlay)
    return tensors
