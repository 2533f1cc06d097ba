"""The clients' part of a stage: jobs, their results, and the bytes that travel."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flows.engine.engines import Engine
from models.errors import UserError
from tasks.client.local_data import SERVER
from tasks.client.payload import Needed, Payload
from tasks.client.regularisers import load_regulariser
from tasks.client.train import TrainJob, find_update
from tasks.client.train_chunk import ChunkError
from tasks.client.work import LocalWork, chosen_objective
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.records import Dropped, StageLog, Update
from tasks.core.round_state import RoundState
from tasks.core.state_schema import parameters_of, read_schema

if TYPE_CHECKING:
    from flows.federation.round import Setup

PayloadOrEach = Payload | Mapping[str, Payload]  # one for all clients, or one each
WorkOrEach = LocalWork | Mapping[str, LocalWork]


def required_updates(quorum: float, clients: int) -> int:
    """Return how many of ``clients`` must report, at least one."""
    return max(1, math.ceil(quorum * clients - 1e-9))  # 0.56 * 25 is a little over 14


def make_jobs(
    setup: "Setup",
    state: RoundState,
    clients: Sequence[str],
    number: int,
    stage: int,
    payload: PayloadOrEach,
    work: WorkOrEach,
) -> list[TrainJob]:
    """Return one job per client in id order; what clients keep or own is added to what they are sent.

    Args:
        setup: The run.
        state: The round's state.
        clients: The clients.
        number: The round.
        stage: The stage.
        payload: What they are sent, one for all or one each.
        work: What they do, one for all or one each.
    """
    jobs = []
    for client in sorted(clients):
        own = work[client] if isinstance(work, Mapping) else work
        sent = payload[client] if isinstance(payload, Mapping) else payload
        sent = sent.with_state(state.private.get(client), state.personal.get(client))
        sent = sent.reduced(references_needed(setup.context, own))
        if own.init == "best_reference":  # the start is one of the references
            sent = replace(sent, start=replace(sent.start, travels=False))
        jobs.append(TrainJob(client, number, stage, sent, own))
    return jobs


def require_tensors(setup: "Setup", jobs: Sequence[TrainJob]) -> None:
    """Refuse a prefix of ``LocalWork.keeps`` or ``trainable`` with which no tensor's name begins, and to keep them all.

    Raises:
        UserError: If there is one: what should stay at clients would be sent, or what should train would not; or if
            nothing is left to send.
    """
    asked = {("keeps", prefix) for job in jobs for prefix in job.work.keeps}
    asked |= {("trainable", prefix) for job in jobs for prefix in job.work.trainable or ()}
    if not asked:
        return
    schema = read_schema(setup.context)
    names = {"keeps": sorted(schema), "trainable": parameters_of(schema)}
    for keeps in {job.work.keeps for job in jobs if job.work.keeps and not job.work.stays}:
        if all(name.startswith(keeps) for name in schema):
            raise UserError(
                f"nothing is left to send: method {setup.method_name} keeps all tensors at the clients",
                where=f"round {jobs[0].round}, LocalWork.keeps",
                expected="prefixes of the names of some tensors",
                found=", ".join(keeps),
            )
    for field, prefix in sorted(asked):
        if any(name.startswith(prefix) for name in names[field]):
            continue
        near = difflib.get_close_matches(prefix, names[field], n=3)
        raise UserError(
            f"method {setup.method_name} names a tensor in LocalWork.{field} that the network does not have",
            where=f"round {jobs[0].round}, LocalWork.{field}",
            expected=f"the beginning of one of: {', '.join(dict.fromkeys([*near, *names[field]]))}",
            found=prefix,
            hint="state_schema.json in the run's folder lists all tensors",
        )


def references_needed(context: RunContext, work: LocalWork) -> Needed:
    """Return which reference models a client needs for its work."""
    regularisers = (load_regulariser(spec.name).needs_reference(spec.values) for spec in work.regularisers)
    if work.init == "best_reference" or any(regularisers):
        return "all"
    objective, settings = chosen_objective(context, work)
    return objective.references_needed(settings)


def expected_images(setup: "Setup", jobs: Sequence[TrainJob]) -> dict[str, int]:
    """Return how many training images each client must report: those of the kind that its work is about."""
    found = {}
    for job in jobs:
        at_server = job.client == SERVER and SERVER not in setup.clients
        labelled = setup.server_images if at_server else setup.clients[job.client]
        unlabelled = setup.unlabelled.get(job.client, 0)
        counts = {"labelled": labelled, "unlabelled": unlabelled, "both": labelled + unlabelled}
        found[job.client] = counts[job.work.data]
    return found


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
    size = settings.task_size(len(jobs))
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


def cost_of(name: str, jobs: Sequence[TrainJob], updates: Sequence[Update], seconds: float) -> StageLog:
    """Return the cost of a stage: bytes of the tensors down to every client, up from those that reported.

    Args:
        name: The stage's name.
        jobs: All jobs of the stage.
        updates: The valid updates.
        seconds: Wall seconds of the stage.
    """
    return StageLog(
        name,
        seconds=seconds,
        clients=len(updates),
        bytes_down=sum(job.payload.bytes for job in jobs),
        bytes_down_naive=sum(job.payload.naive_bytes for job in jobs),
        bytes_up=sum(update.bytes_up for update in updates),
    )
