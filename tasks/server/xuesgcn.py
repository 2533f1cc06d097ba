"""XueSGCN's server step: clients lend each other the label counts of scenes that are alike (specification 4.7).

The published code averages the parameters by size and leaves every client its own scene head and its own counts. Head
and counts have this channel of their own: a count is no parameter, and a weighted mean of counts would shrink them.

The counts say which labels occur together at a client, and the server sees them: more than other methods reveal.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tasks.core.network import PERSONAL
from tasks.core.records import ModelRef
from tasks.core.store import client_folder
from tasks.server.aggregation import combine, size_weights, weighted_mean
from tasks.server.state_rules import Without, once, opened

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store

HEAD, COUNTS, IMAGES = "scene_head.weight", "co_occurrence", "scene_counts"
SCENES = (HEAD, COUNTS, IMAGES)


def nearest_scenes(head: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """For each scene of one client the most similar one of another.

    Args:
        head: The client's scene head [K, D].
        other: The other client's [K', D].

    Returns:
        The cosine of the two rows, float64 [K], and the other's scene, int64 [K].
    """
    cosines = normalize(head.double(), dim=1) @ normalize(other.double(), dim=1).T  # [K, K']
    best, scene = cosines.max(dim=1)
    return best, scene


def lend_counts(heads: Mapping[str, Tensor], counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every client's counts, mixed with those of the others' most similar scenes.

    Co_i[k] <- (Co_i[k] + sum_j c_j Co_j[best_j]) / (1 + sum_j c_j) over the other clients j, where c_j is the cosine
    of the rows; scenes of a negative one are left out. All right-hand sides are the counts before the step.

    Args:
        heads: Client -> scene head [K, D].
        counts: Client -> Co [K, C, C].

    Returns:
        Client -> new Co [K, C, C], float64. The order of the clients does not matter, to the bit.
    """
    clients, out = sorted(heads), {}
    for client in clients:
        total = counts[client].double()
        weight = torch.ones(len(total), dtype=torch.float64)
        for other in clients:
            if other == client:
                continue
            cosines, scene = nearest_scenes(heads[client], heads[other])
            kept = cosines.clamp(min=0.0)  # [K]
            total = total + kept.view(-1, 1, 1) * counts[other].double()[scene]
            weight = weight + kept
        out[client] = total / weight.view(-1, 1, 1)
    return out


def all_counted(start: Tensor, before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """The global counts: what was counted before plus what each client has added in its training.

    Args:
        start: The global counts before the round, any shape.
        before: What each client started its training with.
        after: What it ended with.

    Returns:
        start + sum of (after - before), in the dtype of ``start``; the difference can't be negative but by rounding.
    """
    exact = torch.float64 if start.is_floating_point() else start.dtype
    added = [a.to(exact) - b.to(exact) for a, b in zip(after, before, strict=True)]
    return (start.to(exact) + torch.stack(added).sum(0)).clamp(min=0).to(start.dtype)


def average_with_scenes(
    context: "RunContext",
    clients: Sequence[str],
    refs: Sequence[ModelRef],
    sizes: Sequence[int],
    start: ModelRef,
    before: Sequence[ModelRef | None],
    after: Sequence[ModelRef | None],
    shared: bool,
) -> tuple[ModelRef, dict[str, ModelRef]]:
    """The next global model and what each participant gets back; finished ones are returned if they are there.

    The global model has the parameters' mean by size, the scene heads' too, and the counts of all clients together:
    what a new client starts from, and with ``shared`` everybody.

    Args:
        context: The run.
        clients: The participants, in id order.
        refs: Their trained weights.
        sizes: Their image counts.
        start: The global model that they were sent.
        before: Their own tensors at the beginning of the round, ``None`` where there were none.
        after: Their own tensors at its end, without this step (a client keeps its statistics with bn_policy local).
        shared: One scene head and one set of counts for all clients, instead of their own.

    Returns:
        Reference of the global model; client -> reference of its own tensors, ``model/<name>``, where it has any.
    """
    trained = [[client, ref.digest] for client, ref in zip(clients, refs, strict=True)]
    held = [[ref.digest if ref else None for ref in states] for states in (before, after)]
    inputs = [trained, list(sizes), start.digest, held]
    model = once(context, "scenes", inputs, lambda store: _global(context, store, refs, sizes, start, before))
    lent = {} if shared else _lent(context.open_store(), clients, refs)
    states = {}
    for client, own in zip(clients, after, strict=True):
        if own or lent:
            make = functools.partial(_own, own=own, lent=lent.get(client, {}))
            states[client] = once(context, "scenes", [*inputs, shared, client], make, folder=client_folder(client))
    return model, states


def _global(
    context: "RunContext",
    store: "Store",
    refs: Sequence[ModelRef],
    sizes: Sequence[int],
    start: ModelRef,
    before: Sequence[ModelRef | None],
) -> dict[str, Tensor]:
    """The global model's tensors; the arguments are those of ``average_with_scenes``."""
    weights = size_weights(sizes)
    with opened(store, [start, *refs]) as (sent, *readers):
        state = combine([Without(r, set(SCENES)) for r in readers], weights, weighted_mean, context.bn_policy)
        heads = [reader.get_tensor(HEAD) for reader in readers]
        state[HEAD] = weighted_mean(heads, weights).to(heads[0].dtype)
        own = [store.get_state(ref) if ref else {} for ref in before]
        for name in (COUNTS, IMAGES):
            base = sent.get_tensor(name)
            begun = [tensors.get(f"{PERSONAL}{name}", base) for tensors in own]
            state[name] = all_counted(base, begun, [reader.get_tensor(name) for reader in readers])
    return state


def _own(store: "Store", own: ModelRef | None, lent: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a client keeps or gets back: its other tensors as they are, its scenes as ``lent``."""
    state = store.get_state(own) if own else {}
    return {name: value for name, value in state.items() if name.removeprefix(PERSONAL) not in SCENES} | dict(lent)


def _lent(store: "Store", clients: Sequence[str], refs: Sequence[ModelRef]) -> dict[str, dict[str, Tensor]]:
    """Client -> its own scenes after the step: the head and the number of images as trained, the counts mixed."""
    with opened(store, refs) as readers:
        scenes = {c: {n: r.get_tensor(n) for n in SCENES} for c, r in zip(clients, readers, strict=True)}
    mixed = lend_counts({c: own[HEAD] for c, own in scenes.items()}, {c: own[COUNTS] for c, own in scenes.items()})
    for client, own in scenes.items():
        own[COUNTS] = mixed[client].to(own[COUNTS].dtype)
    return {client: {f"{PERSONAL}{name}": value for name, value in own.items()} for client, own in scenes.items()}
