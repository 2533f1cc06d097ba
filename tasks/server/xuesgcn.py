"""XueSGCN's server step: label co-occurrence counts are mixed between similar scenes (docs/algorithms/xuesgcn.md).

The published code averages the parameters by sample count; every client keeps its own scene head and counts. Head and
counts are not averaged with the parameters: a weighted mean of counts would shrink them.

The counts tell the server which labels occur together at a client: more than other methods reveal.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tasks.core.network import PERSONAL
from tasks.core.records import ModelRef
from tasks.core.store import client_folder
from tasks.server.state_rules import cached_state, open_states

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store

HEAD, COUNTS, IMAGES = "scene_head.weight", "co_occurrence", "scene_counts"
SCENES = (HEAD, COUNTS, IMAGES)


def nearest_scenes(head: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each scene of one client the most similar scene of another.

    Args:
        head: The client's scene head [K, D].
        other: The other client's [K', D].

    Returns:
        The cosine of the two rows, float64 [K], and the other's scene, int64 [K].
    """
    cosines = normalize(head.double(), dim=1) @ normalize(other.double(), dim=1).T  # [K, K']
    best, scene = cosines.max(dim=1)
    return best, scene


def mix_co_occurrence(heads: Mapping[str, Tensor], counts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return every client's counts, mixed with those of the others' most similar scenes.

    Co_i[k] <- (Co_i[k] + sum_j c_j Co_j[best_j]) / (1 + sum_j c_j) over the other clients j, where c_j is the cosine
    of the rows; scenes with a negative cosine are left out. All right-hand sides are the counts before the step.

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


def total_counts(start: Tensor, before: Sequence[Tensor], after: Sequence[Tensor]) -> Tensor:
    """Return the global counts: those before the round plus what each client added in its training.

    Args:
        start: The global counts before the round, any shape.
        before: Each client's counts at the start of its training.
        after: Each client's counts at the end.

    Returns:
        start + sum of (after - before), in the dtype of ``start``; the difference is negative only by rounding.
    """
    exact = torch.float64 if start.is_floating_point() else start.dtype
    added = [a.to(exact) - b.to(exact) for a, b in zip(after, before, strict=True)]
    return (start.to(exact) + torch.stack(added).sum(0)).clamp(min=0).to(start.dtype)


def mix_scenes(
    context: "RunContext",
    clients: Sequence[str],
    refs: Sequence[ModelRef],
    mean: ModelRef,
    start: ModelRef,
    before: Sequence[ModelRef | None],
    shared: bool,
) -> tuple[ModelRef, dict[str, ModelRef]]:
    """Return the next global model and each participant's own scenes.

    The global model is the mean with the total counts of all clients in place of averaged ones. New clients start from
    it; with ``shared`` all clients do.

    Args:
        context: The run.
        clients: The participants, in id order.
        refs: Their trained weights.
        mean: The mean of these, weighted by sample count.
        start: The global model that they were sent.
        before: Their own scenes at the start of the round, ``None`` where there were none.
        shared: One scene head and one set of counts for all clients, instead of their own.

    Returns:
        Reference of the global model; client -> reference of its own scenes, ``model/<name>``, unless they are shared.
    """
    trained = [[client, ref.digest] for client, ref in zip(clients, refs, strict=True)]
    inputs = [trained, mean.digest, start.digest, [ref.digest if ref else None for ref in before]]
    model = cached_state(context, "scenes", inputs, lambda store: _with_totals(store, refs, mean, start, before))
    mixed = {} if shared else _mixed_scenes(context.open_store(), clients, refs)
    states = {}
    for client, scenes in mixed.items():
        made, folder = [*inputs, client], client_folder(client)
        states[client] = cached_state(context, "scenes", made, lambda _, scenes=scenes: scenes, folder=folder)  # type: ignore[misc]
    return model, states


def _with_totals(
    store: "Store", refs: Sequence[ModelRef], mean: ModelRef, start: ModelRef, before: Sequence[ModelRef | None]
) -> dict[str, Tensor]:
    """Return the mean's tensors with the total counts; the arguments are those of ``mix_scenes``."""
    state = store.get_state(mean)
    with open_states(store, [start, *refs]) as (sent, *readers):
        personal = [store.get_state(ref) if ref else {} for ref in before]
        for name in (COUNTS, IMAGES):
            base = sent.get_tensor(name)
            begun = [tensors.get(f"{PERSONAL}{name}", base) for tensors in personal]
            state[name] = total_counts(base, begun, [reader.get_tensor(name) for reader in readers])
    return state


def _mixed_scenes(store: "Store", clients: Sequence[str], refs: Sequence[ModelRef]) -> dict[str, dict[str, Tensor]]:
    """Return each client's scenes after the step: head and image counts as trained, co-occurrence counts mixed."""
    with open_states(store, refs) as readers:
        scenes = {c: {n: r.get_tensor(n) for n in SCENES} for c, r in zip(clients, readers, strict=True)}
    mixed = mix_co_occurrence(
        {c: own[HEAD] for c, own in scenes.items()}, {c: own[COUNTS] for c, own in scenes.items()}
    )
    for client, own in scenes.items():
        own[COUNTS] = mixed[client].to(own[COUNTS].dtype)
    return {client: {f"{PERSONAL}{name}": value for name, value in own.items()} for client, own in scenes.items()}
