"""The weights between clients, by layer and round: written by ``aggregate``, read by reports.

Whenever an aggregation makes models of single clients (``client/<id>``), the weights of its layers are stored beside
the round as ``rounds/NNNN/server-mixing.safetensors``, and ``RoundState.server["mixing"]`` refers to it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.round_state import RoundState, client_of
from tasks.core.store import Store
from tasks.server.aggregators.mixing import Mixing, Row, SparseRow, positive

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

NAMESPACE = "mixing"  # in RoundState.server
WHOLE, OTHERS = "model", "other tensors"  # names of what is mixed alike where a mixing has no layers, or only some
NAMES, WEIGHTS, POSITIONS, COUNTS = "names", "weights", "positions", "counts"


@dataclass(frozen=True)
class MixingRecord:
    """The weights with which a round's updates make clients' models.

    Attributes:
        models: The M clients whose models came out.
        clients: The N clients whose updates went in.
        layers: Layer -> float32 [M, N], rows sum to 1.
    """

    models: tuple[str, ...]
    clients: tuple[str, ...]
    layers: "Mapping[str, np.ndarray]"

    def square(self, ids: Sequence[str]) -> "dict[str, np.ndarray]":
        """Return layer -> [n, n] of these n clients in this order; who got no new model has its own, weight 1."""
        import numpy as np

        place = {client: index for index, client in enumerate(ids)}
        if unknown := sorted({*self.models, *self.clients} - place.keys()):
            raise ValueError(f"clients of the round are missing: {', '.join(unknown[:5])}")
        rows, columns = ([place[client] for client in names] for names in (self.models, self.clients))
        found = {}
        for layer, weights in self.layers.items():
            found[layer] = np.eye(len(ids), dtype=np.float32)
            found[layer][rows] = 0
            found[layer][np.ix_(rows, columns)] = weights
        return found


def mixing_tensors(mixing: Mixing, clients: Sequence[str]) -> "dict[str, Tensor]":
    """Return the weights between clients as tensors, empty if no client's own model comes out.

    Rows of which only weights above 0 are stored stay so: M x k of them take M x k places.

    Args:
        mixing: The weights.
        clients: The N clients of the updates.
    """
    import torch

    own = {index: client for index, name in enumerate(mixing.outputs) if (client := client_of(name)) is not None}
    if not own:
        return {}
    matrices = dict(mixing.layers)
    if not mixing.members:
        matrices = {OTHERS if mixing.layers else WHOLE: mixing.rows, **matrices}
    names = {"models": list(own.values()), "clients": list(clients), "layers": list(matrices)}
    tensors = {NAMES: torch.frombuffer(bytearray(json.dumps(names).encode()), dtype=torch.uint8)}
    for number, rows in enumerate(matrices.values()):
        chosen = [rows[index] for index in own]
        if not any(isinstance(row, SparseRow) for row in chosen):
            tensors[f"{WEIGHTS}/{number}"] = torch.tensor(chosen, dtype=torch.float64).float()
            continue
        tensors |= {f"{kind}/{number}": value for kind, value in _packed(chosen).items()}
    return tensors


def _packed(rows: Sequence[Row]) -> "dict[str, Tensor]":
    """Return the weights above 0 row after row, their positions, and their number in each row."""
    import torch

    places = [positive(row) for row in rows]
    return {
        WEIGHTS: torch.tensor([row[at] for row, found in zip(rows, places, strict=True) for at in found]).float(),
        POSITIONS: torch.tensor([at for found in places for at in found], dtype=torch.int32),
        COUNTS: torch.tensor([len(found) for found in places], dtype=torch.int32),
    }


def read_mixing(store: Store, state: RoundState) -> MixingRecord | None:
    """Return the weights between clients of a round, ``None`` if its method mixes no clients' models.

    Args:
        store: The run's store.
        state: The round's state, ``record.state``.

    Raises:
        UserError: If the file is gone or damaged.
    """
    ref: ModelRef | None = state.server.get(NAMESPACE)
    if ref is None:
        return None
    tensors = store.get_state(ref)
    try:
        names = json.loads(bytes(tensors[NAMES].tolist()))
        models, clients = tuple(names["models"]), tuple(names["clients"])
        layers = {
            layer: _matrix(tensors, number, len(models), len(clients)) for number, layer in enumerate(names["layers"])
        }
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError("the weights between clients are damaged", where=store.path(ref.uri), found=error) from error
    return MixingRecord(models, clients, layers)


def _matrix(tensors: "Mapping[str, Tensor]", number: int, rows: int, columns: int) -> "np.ndarray":
    """Return the weights of one layer, [rows, columns]."""
    import torch

    weights = tensors[f"{WEIGHTS}/{number}"]
    if f"{COUNTS}/{number}" not in tensors:
        return weights.reshape(rows, columns).numpy()
    full = torch.zeros(rows, columns)
    row_of = torch.repeat_interleave(torch.arange(rows), tensors[f"{COUNTS}/{number}"].long())
    full[row_of, tensors[f"{POSITIONS}/{number}"].long()] = weights
    return full.numpy()
