"""The clients' part of a stage: who gets which job, what became of it, and what it cost on the wire."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from flows.engine.engines import Engine
from tasks.client.chunk import ChunkError
from tasks.client.regularisers import RegulariserSpec
from tasks.client.train import TrainJob, find_update
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.records import Dropped, ModelRef, StageLog, Update

Need = Literal["none", "own", "all"]


def references_for(
    client: str, references: Sequence[ModelRef], own: Mapping[str, int] | None, need: Need
) -> tuple[tuple[tuple[ModelRef, int], ...], int | None]:
    """The prototypes that one client is sent, each with its number of equal multiplicity, and its own among them.

    Equal prototypes are sent and run once: K equal ones become one with K multiplicity, others one each.
    """
    if need == "none" or not references:
        return (), None
    if need == "own":
        return ((references[own[client] if own else 0], 1),), None if own is None else 0
    if all(ref.digest == references[0].digest for ref in references):
        return ((references[0], len(references)),), None if own is None else 0
    return tuple((ref, 1) for ref in references), None if own is None else own[client]


def make_jobs(
    clients: Sequence[str],
    number: int,
    stage: int,
    start: ModelRef | Mapping[str, ModelRef],
    references: Sequence[ModelRef] | None,
    own: Mapping[str, int] | None,
    need: Need,
    start_from_best: bool,
    states: Mapping[str, ModelRef],
    term: RegulariserSpec | Mapping[str, RegulariserSpec] | None,
    shared: ModelRef | None,
) -> list[TrainJob]:
    """One job per client, in id order; the arguments are those of ``Federation.train``."""
    jobs = []
    for client in sorted(clients):
        first = start if isinstance(start, ModelRef) else start[client]
        sent, place = (
            references_for(client, [first], None, need)
            if references is None
            else references_for(client, references, own, need)
        )
        jobs.append(
            TrainJob(
                client=client,
                round=number,
                stage=stage,
                start=first,
                references=sent,
                own=place,
                start_from_best=start_from_best,
                state=states.get(client),
                term=term[client] if isinstance(term, Mapping) else term,
                shared=shared,
            )
        )
    return jobs


def run_jobs(
    engine: Engine,
    context: RunContext,
    settings: FederationSettings,
    jobs: Sequence[TrainJob],
    name: str,
    told: Callable[[int], None] = lambda _: None,
) -> tuple[list[Update], list[Dropped]]:
    """Runs the jobs in chunks; what a failed chunk finished still counts. ``told`` hears how many clients ended."""
    size = settings.clients_per_task
    chunks = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    slots = settings.workers if context.device == "cpu" else settings.clients_per_gpu
    calls = [
        (f"round {chunk[0].round}: {name}, {', '.join(j.client for j in chunk)}", (context, chunk, slots))
        for chunk in chunks
    ]
    # Clients keep their own time; this bound is for a task that hangs outside the training loop.
    bound = 1.5 * size * context.client_timeout_s + 60
    updates: list[Update] = []
    dropped: list[Dropped] = []
    ended: list[int] = []

    def count(place: int) -> None:
        ended.append(len(chunks[place]))
        told(sum(ended))

    for chunk, outcome in zip(chunks, engine.map("train-clients", calls, bound, count), strict=True):
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
    """Counts bytes from the tensors that travel: down to every client, up from those that answered.

    Args:
        name: The stage's name.
        jobs: What was sent.
        updates: What came back.
        seconds: Wall seconds of the stage.
        already_at_client: The clients have the start already, so it is not sent.
        server_owned: The clients' own tensors come from the server, so they are.
    """
    log = StageLog(name, seconds=seconds, clients=len(updates))
    for job in jobs:
        sizes = {ref.digest: ref.bytes for ref, _ in job.references}
        log.bytes_down_naive += sum(ref.bytes * count for ref, count in job.references)
        single = [job.shared, job.state if server_owned else None]
        if not already_at_client and not job.start_from_best:
            single.append(job.start)
        for ref in single:
            if ref is not None and ref.digest not in sizes:
                sizes[ref.digest] = ref.bytes
                log.bytes_down_naive += ref.bytes
        log.bytes_down += sum(sizes.values())
    log.bytes_up = sum(update.model.bytes for update in updates)
    return log
