"""The clients' part of a stage: jobs, their results, and the bytes that travel."""

import math
from collections.abc import Callable, Mapping, Sequence

from flows.engine.engines import Engine
from tasks.client.objectives import Needed
from tasks.client.regularisers import RegulariserSpec
from tasks.client.train import Init, TrainJob, find_update
from tasks.client.train_chunk import ChunkError
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.records import Dropped, ModelRef, StageLog, Update


def references_for(
    client: str, references: Sequence[ModelRef], cluster_of: Mapping[str, int] | None, need: Needed
) -> tuple[tuple[tuple[ModelRef, int], ...], int | None]:
    """Return the references that one client is sent with their multiplicities, and its cluster's index among them.

    Equal references are sent and run once: K equal ones become one of multiplicity K.
    """
    if need == "none" or not references:
        return (), None
    if need == "own_cluster":
        return ((references[cluster_of[client] if cluster_of else 0], 1),), None if cluster_of is None else 0
    if all(ref.digest == references[0].digest for ref in references):
        return ((references[0], len(references)),), None if cluster_of is None else 0
    return tuple((ref, 1) for ref in references), None if cluster_of is None else cluster_of[client]


def required_updates(quorum: float, clients: int) -> int:
    """Return how many of ``clients`` must report, at least one."""
    return max(1, math.ceil(quorum * clients - 1e-9))  # 0.56 * 25 is a little over 14


def make_jobs(
    clients: Sequence[str],
    number: int,
    stage: int,
    start: ModelRef | Mapping[str, ModelRef],
    references: Sequence[ModelRef] | None,
    cluster_of: Mapping[str, int] | None,
    need: Needed,
    init: Init,
    states: Mapping[str, ModelRef],
    regulariser: RegulariserSpec | Mapping[str, RegulariserSpec] | None,
    server_tensors: ModelRef | None,
) -> list[TrainJob]:
    """Return one job per client in id order; the arguments are those of ``Federation.train``."""
    jobs = []
    for client in sorted(clients):
        first = start if isinstance(start, ModelRef) else start[client]
        given, clusters = ([first], None) if references is None else (references, cluster_of)
        sent, assigned = references_for(client, given, clusters, need)
        jobs.append(
            TrainJob(
                client=client,
                round=number,
                stage=stage,
                start=first,
                references=sent,
                assigned_cluster=assigned,
                init=init,
                state=states.get(client),
                regulariser=regulariser[client] if isinstance(regulariser, Mapping) else regulariser,
                server_tensors=server_tensors,
            )
        )
    return jobs


def run_jobs(
    engine: Engine,
    context: RunContext,
    settings: FederationSettings,
    jobs: Sequence[TrainJob],
    name: str,
    on_progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[Update], list[Dropped]]:
    """Run the jobs in chunks; clients that a failed chunk finished still count.

    ``on_progress`` is called with the number of clients that have ended.
    """
    size = settings.clients_per_task
    chunks = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    slots = settings.workers if context.device == "cpu" else settings.clients_per_gpu
    calls = [
        (f"round {chunk[0].round}: {name}, {', '.join(j.client for j in chunk)}", (context, chunk, slots))
        for chunk in chunks
    ]
    # Clients watch their own time; this bound is for a task that hangs outside the training loop.
    timeout_s = 1.5 * size * context.client_timeout_s + 60
    updates: list[Update] = []
    dropped: list[Dropped] = []
    ended: list[int] = []

    def count(index: int) -> None:
        ended.append(len(chunks[index]))
        on_progress(sum(ended))

    for chunk, outcome in zip(chunks, engine.map("train-clients", calls, timeout_s, count), strict=True):
        if outcome.error is None:
            updates += outcome.value[0]
            dropped += outcome.value[1]
            continue
        failed = outcome.error if isinstance(outcome.error, ChunkError) else ChunkError({})
        dropped += failed.dropped
        for job in chunk:
            if any(entry.client == job.client for entry in failed.dropped):
                continue
            done = find_update(context.open_store(), job.output_name(context))
            if done:
                updates.append(done)
            else:
                reason = failed.failures.get(job.client, f"{type(outcome.error).__name__}: {outcome.error}")
                dropped.append(Dropped(job.client, job.stage, reason))
    return updates, dropped


def cost_of(
    name: str,
    jobs: Sequence[TrainJob],
    updates: Sequence[Update],
    seconds: float,
    *,
    already_at_client: bool = False,
    server_owned: bool = False,
) -> StageLog:
    """Return the cost of a stage: bytes of the tensors down to every client, up from those that reported.

    Args:
        name: The stage's name.
        jobs: All jobs of the stage.
        updates: The valid updates.
        seconds: Wall seconds of the stage.
        already_at_client: The clients have the start already, so it is not sent.
        server_owned: The clients' private tensors come from the server, so they are sent.
    """
    log = StageLog(name, seconds=seconds, clients=len(updates))
    for job in jobs:
        sizes = {ref.digest: ref.bytes for ref, _ in job.references}
        log.bytes_down_naive += sum(ref.bytes * count for ref, count in job.references)
        single = [job.server_tensors, job.state if server_owned else None]
        if not already_at_client and job.init == "start":
            single.append(job.start)
        for ref in single:
            if ref is not None and ref.digest not in sizes:
                sizes[ref.digest] = ref.bytes
                log.bytes_down_naive += ref.bytes
        log.bytes_down += sum(sizes.values())
    log.bytes_up = sum(update.model.bytes for update in updates)
    return log
