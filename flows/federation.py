"""The run as a round sees it: sample, train, cluster, aggregate. Each call is one or more tasks of the engine.

A ``Federation`` lives for one round. It remembers what each stage cost and who was dropped, so that a round's
file in ``flows/rounds`` holds nothing but the algorithm.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from flows.engines import Engine
from models.errors import UserError
from models.registry import NETWORKS
from tasks.client.chunk import ChunkError
from tasks.client.objectives import load_objective
from tasks.client.train import TrainJob, find_update
from tasks.context import RunContext
from tasks.federation_settings import FederationSettings
from tasks.randomness import address, numpy_generator
from tasks.records import Dropped, ModelRef, RoundRecord, StageLog, Update


class Progress(Protocol):
    """Told about what is going on; the command line draws it."""

    def stage(self, round_: int, name: str, clients: int) -> None:
        """A stage begins."""
        ...

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """A round is finished; ``found`` when it was there already."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        ...


class Federation:
    """One round's view of the run.

    Args:
        context: The run, as tasks see it.
        settings: The federation's settings.
        method: The method's own settings.
        clients: All clients of the partition, id -> number of training images.
        engine: Where tasks run.
        number: The round, from 1.
        states: Client id -> its private state from earlier rounds.
        progress: Told about every stage.
    """

    def __init__(
        self,
        context: RunContext,
        settings: FederationSettings,
        method: Any,
        clients: Mapping[str, int],
        engine: Engine,
        number: int,
        states: Mapping[str, ModelRef],
        progress: Progress,
    ) -> None:
        self.context, self.settings, self.method = context, settings, method
        self.clients, self.engine, self.number, self.progress = clients, engine, number, progress
        self.record = RoundRecord(round=number, model=ModelRef("", "", 0), client_states=dict(states))

    def sample(self) -> list[str]:
        """The round's participants in id order: all, or ``clients_per_round`` drawn without replacement."""
        ids = sorted(self.clients)
        wanted = self.settings.clients_per_round
        if wanted is not None and wanted < len(ids):
            rng = numpy_generator(self.context.seed, "sample clients", self.number)
            ids = sorted(rng.choice(ids, size=wanted, replace=False).tolist())
        self.record.participants = ids
        return ids

    def train(
        self,
        clients: Sequence[str],
        start: ModelRef | Mapping[str, ModelRef],
        *,
        stage: int,
        name: str,
        guides: Sequence[ModelRef] = (),
        own: Mapping[str, int] | None = None,
        start_from_best: bool = False,
        start_is_held: bool = False,
    ) -> list[Update]:
        """Local training of the given clients.

        Args:
            clients: Who trains.
            start: The weights they start from, one for all or one each.
            stage: Number of the stage; part of every random draw's address.
            name: What the tasks are called.
            guides: Frozen prototypes that are sent along.
            own: Each client's own group among the guides.
            start_from_best: Each client starts from the guide with its lowest loss.
            start_is_held: The client has the start already (its own last model), so it is not sent.

        Returns:
            The updates that count, in client-id order.

        Raises:
            UserError: If fewer than the quorum answer.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(clients))
        objective = load_objective(self.context.objective)
        if not start_from_best and not objective.uses_guides(self.context.objective_settings):
            guides = ()
        jobs = [
            TrainJob(
                client=client,
                round=self.number,
                stage=stage,
                start=start if isinstance(start, ModelRef) else start[client],
                guides=_with_copies(guides),
                own=_own(own, client, guides),
                start_from_best=start_from_best,
                state=self.record.client_states.get(client),
            )
            for client in sorted(clients)
        ]
        answered, dropped = self._run_jobs(jobs, name)
        updates, refused = self.engine.run(
            "check-updates",
            f"round {self.number}: check updates of {name}",
            self.context,
            answered,
            jobs[0].start,
            stage,
            self.clients,
        )
        self._account(name, jobs, updates, time.monotonic() - began, start_is_held)
        self.record.dropped += [*dropped, *refused]
        self.record.updates.setdefault(stage, []).extend(updates)
        self.record.client_states |= {u.client: u.state for u in updates if u.state}
        self._need_quorum(updates, jobs, name, [*dropped, *refused])
        return updates

    def _run_jobs(self, jobs: Sequence[TrainJob], name: str) -> tuple[list[Update], list[Dropped]]:
        """Runs the jobs in chunks; what a failed chunk finished still counts."""
        size = self.settings.clients_per_task
        chunks = [jobs[i : i + size] for i in range(0, len(jobs), size)]
        slots = self.settings.workers if self.context.device == "cpu" else self.settings.clients_per_gpu
        calls = [
            (f"round {self.number}: {name}, {', '.join(j.client for j in chunk)}", (self.context, chunk, slots))
            for chunk in chunks
        ]
        # Clients keep their own time; this bound is for a task that hangs outside the training loop.
        bound = 1.5 * size * self.context.client_timeout_s + 60
        updates: list[Update] = []
        dropped: list[Dropped] = []
        for chunk, outcome in zip(chunks, self.engine.map("train-clients", calls, bound), strict=True):
            if outcome.error is None:
                updates += outcome.value[0]
                dropped += outcome.value[1]
                continue
            failed = outcome.error if isinstance(outcome.error, ChunkError) else ChunkError({})
            dropped += failed.dropped
            for job in chunk:
                if any(entry.client == job.client for entry in failed.dropped):
                    continue
                done = find_update(self.context.open_store(), job.output_name(self.context))
                if done:
                    updates.append(done)
                else:
                    reason = failed.failures.get(job.client, f"{type(outcome.error).__name__}: {outcome.error}")
                    dropped.append(Dropped(job.client, job.stage, reason))
        return updates, dropped

    def _account(
        self, name: str, jobs: Sequence[TrainJob], updates: Sequence[Update], seconds: float, start_is_held: bool
    ) -> None:
        """Counts bytes from the tensors that travel: down to every client, up from those that answered."""
        log = StageLog(name, seconds=seconds, clients=len(updates))
        for job in jobs:
            sizes = {ref.digest: ref.bytes for ref, _ in job.guides}
            log.bytes_down_naive += sum(ref.bytes * count for ref, count in job.guides)
            if not start_is_held and not job.start_from_best and job.start.digest not in sizes:
                sizes[job.start.digest] = job.start.bytes
                log.bytes_down_naive += job.start.bytes
            log.bytes_down += sum(sizes.values())
        log.bytes_up = sum(update.model.bytes for update in updates)
        self.record.stages.append(log)

    def _need_quorum(
        self, updates: Sequence[Update], jobs: Sequence[TrainJob], name: str, dropped: Sequence[Dropped]
    ) -> None:
        need = max(1, math.ceil(self.settings.quorum * len(jobs) - 1e-9))  # 0.56 * 25 is a little over 14
        if len(updates) >= need:
            return
        raise UserError(
            f"too few clients answered in round {self.number}, {name}",
            where="federation.quorum",
            expected=f"at least {need} of {len(jobs)} clients",
            found=f"{len(updates)}; " + "; ".join(f"{d.client}: {d.reason}" for d in dropped[:5]),
            hint="finished clients are kept: mend the cause and run again",
        )

    def cluster(
        self, updates: Sequence[Update], anchor: ModelRef, k: int, how: str, prefix: str | None, *, name: str
    ) -> dict[str, int]:
        """Groups clients by how their models changed (``kmeans``), or by lot (``random``).

        Returns:
            Client id -> group, 0..K'-1.

        Raises:
            UserError: If the network names no parameters to cluster on and none are set.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(updates))
        if how == "random":
            from tasks.server.cluster import random_groups

            numbers = random_groups(len(updates), k, numpy_generator(self.context.seed, "random groups", self.number))
        else:
            prefix = prefix or NETWORKS[self.context.model.name].cluster_prefix
            if prefix is None:
                raise UserError(
                    f"network {self.context.model.name} names no layer to cluster clients on",
                    where="method.fmman.cluster_on",
                    hint="set it to a prefix of the parameter names, for instance backbone.layer4",
                )
            seed = address(self.context.seed, "k-means", self.number)
            refs = [update.model for update in updates]
            title = f"round {self.number}: {name}"
            numbers = self.engine.run("cluster-models", title, self.context, refs, anchor, prefix, k, seed)
        self.record.stages.append(StageLog(name, seconds=time.monotonic() - began, clients=len(updates)))
        return {update.client: number for update, number in zip(updates, numbers, strict=True)}

    def combine(self, updates: Sequence[Update], weights: Sequence[float], *, name: str, rule: Any = None) -> ModelRef:
        """Combines the clients' models with given weights and, if given, another rule than the weighted mean.

        Args:
            updates: In client-id order.
            weights: One per update, summing to 1.
            name: What the task is called.
            rule: ``rule(values, weights) -> tensor`` for the values of one name: a module's function, or
                ``functools.partial`` of one where it has a setting.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(updates))
        extra = () if rule is None else (rule,)
        refs = [update.model for update in updates]
        title = f"round {self.number}: {name}"
        ref: ModelRef = self.engine.run("aggregate", title, self.context, refs, list(weights), *extra)
        self.record.weights = {u.client: weight for u, weight in zip(updates, weights, strict=True)}
        self.record.stages.append(StageLog(name, seconds=time.monotonic() - began, clients=len(updates)))
        return ref

    def average(self, updates: Sequence[Update], *, name: str) -> ModelRef:
        """The mean by image count, M_i / sum M."""
        from tasks.server.average import size_weights

        return self.combine(updates, size_weights([update.samples for update in updates]), name=name)

    def average_by_loss(self, updates: Sequence[Update], mode: Any, *, name: str) -> ModelRef:
        """FMMAN's eq 15, normalised: the mean by loss and image count. Falls back to size, with a note."""
        from tasks.server.average import loss_weights

        losses = [update.mean("classification") for update in updates]
        weights, note = loss_weights(losses, [update.samples for update in updates], mode)
        if note:
            self.record.notes.append(f"{name}: {note}")
        return self.combine(updates, weights, name=name)

    def keep(self, groups: Mapping[str, int], prototypes: Sequence[ModelRef]) -> None:
        """Puts groups and prototypes into the round's record."""
        self.record.groups, self.record.prototypes = dict(groups), list(prototypes)


def _with_copies(guides: Sequence[ModelRef]) -> tuple[tuple[ModelRef, int], ...]:
    """Equal prototypes are sent and run once: K equal ones become one with K copies, others one each."""
    if guides and all(ref.digest == guides[0].digest for ref in guides):
        return ((guides[0], len(guides)),)
    return tuple((ref, 1) for ref in guides)


def _own(own: Mapping[str, int] | None, client: str, guides: Sequence[ModelRef]) -> int | None:
    """The client's group among the guides as sent; all-equal guides are one."""
    if own is None or not guides:
        return None
    return own[client] if len(_with_copies(guides)) > 1 else 0
