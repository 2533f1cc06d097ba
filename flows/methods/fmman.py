"""FMMAN's cycle of four stages (J. Low Power Electron. Appl. 2025, 15(3), 46); docs/algorithms/fmman.md."""

from typing import TYPE_CHECKING

from flows.methods.fmman_settings import Settings, check
from flows.methods.fmman_stages import average_clusters, clusters, loss_weighted
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

__all__ = ["DESCRIPTION", "Settings", "check", "run_round"]
ACCEPTS_WEIGHTING = False  # eq 15 weighs by loss
DESCRIPTION = "FMMAN: train, cluster, refine, loss-weighted average (J. Low Power Electron. Appl. 2025, 15(3), 46)"


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Do one cycle of four stages; the same clients take part in both trainings."""
    s: Settings = fed.method
    clients, start = fed.sample(), state.global_model

    # Stage 1: every client trains from the global model, of which it has K copies as prototypes.
    k = 1 if s.clustering == "none" else s.clusters
    for repeat in range(s.stage1_rounds):
        payload = Payload.of(start, references=[start] * k)
        updates = fed.train(clients, payload, stage=1 + 10 * repeat, name="stage 1 local training")
        if repeat + 1 < s.stage1_rounds:
            start = fed.average(updates, name="stage 1 weighted average")

    if s.clustering != "none":
        # Stage 2: cluster the updates (eq 13), average each cluster weighted by sample count (eq 14).
        cluster_of = clusters(fed, updates, start)
        prototypes = average_clusters(fed, updates, cluster_of, [], name="stage 2 average cluster")

        # Stage 3: every client refines its cluster's prototype, with all prototypes as references.
        local = s.stage3_start == "local"
        work = LocalWork(init="best_reference" if s.stage3_start == "best_cluster" else "start")
        for repeat in range(s.stage3_rounds):
            payloads = {}
            for update in updates:
                own = cluster_of[update.client]
                begin = update.model if local else prototypes[own]
                payloads[update.client] = Payload.of(begin, references=prototypes, own=own, at_client=local)
            name = "stage 3 refine with prototypes"
            updates = fed.train(sorted(payloads), payloads, work, stage=3 + 10 * repeat, name=name)
            if repeat + 1 < s.stage3_rounds:
                prototypes = average_clusters(fed, updates, cluster_of, prototypes, name="stage 3 average cluster")
        state.set_clusters(cluster_of, prototypes)

    # Stage 4: one global model, clients weighted by loss and sample count (eq 15, normalised).
    return state.with_global(loss_weighted(fed, updates, start, name="stage 4 loss-weighted average"))
