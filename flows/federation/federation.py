"""The operations of a round that involve updates: local training, aggregation, clustering.

A ``Federation`` lives for one round. It records each stage's cost and the dropped clients, so that a method's module
in ``flows/methods`` contains only the algorithm.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flows.federation.downlink import Downlink
from flows.federation.frozen_parts import FrozenParts
from flows.federation.jobs import (
    PayloadOrEach,
    WorkOrEach,
    cost_of,
    expected_images,
    make_jobs,
    require_tensors,
    required_updates,
    run_jobs,
)
from flows.federation.round import Round, Setup
from models.errors import UserError
from tasks.client.train import TrainJob
from tasks.client.work import LocalWork
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.randomness import derive_seed
from tasks.core.records import Dropped, ModelRef, RoundRecord, Update
from tasks.core.round_state import GLOBAL, RoundState
from tasks.server.aggregation_job import Aggregated, AggregationJob
from tasks.server.mixing_record import NAMESPACE as MIXING
from tasks.server.weighting import round_weights


class Federation(Round):
    """One round of a run: what a method uses."""

    def __init__(self, setup: Setup, number: int, state: RoundState, last: RoundRecord | None = None) -> None:
        super().__init__(setup, number, state, last)
        self.participations_before = dict(state.participations)
        self.downlink = Downlink(self) if self.context.downlink_transforms else None
        freezes = self.context.train.freeze != "none" and self.downlink is None  # which has its own account
        self.frozen_parts = FrozenParts(self) if freezes else None

    def train(
        self,
        clients: Sequence[str],
        payload: PayloadOrEach,
        work: WorkOrEach | None = None,
        *,
        stage: int,
        name: str,
        commit: bool = True,
    ) -> list[Update]:
        """Train the given clients locally.

        Args:
            clients: The clients; ``SERVER`` is the participant with the server's labelled images.
            payload: What they are sent, one for all or one each. What a client keeps, and what the server made for it,
                is added from the round's state.
            work: What they do, one for all or one each. Default: supervised training as the settings say.
            stage: Number of the stage; part of every seed.
            name: Name of the stage and its tasks.
            commit: Whether the updates are recorded and the clients keep what they learned; else only the cost is.

        Returns:
            The valid updates in client-id order.

        Raises:
            UserError: If the network lacks a tensor that ``work`` names, fewer clients than the quorum report, or a
                required one does not.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(clients))
        jobs = make_jobs(self.setup, self.state, clients, self.number, stage, payload, work or LocalWork())
        require_tensors(self.setup, jobs)
        if self.downlink:
            jobs = self.downlink.compress(jobs, name)
        if self.frozen_parts:
            jobs = self.frozen_parts.sent_once(jobs)
        reported, dropped = run_jobs(self.engine, self.context, self.settings, jobs, name, self.progress.clients_done)
        keeping = {job.client: job.work.keeps for job in jobs if job.work.keeps}
        known = (jobs[0].payload.start.ref, stage, expected_images(self.setup, jobs), keeping)
        title = f"round {self.number}: check updates of {name}"
        updates, rejected = self.engine.run("check-updates", title, self.context, reported, *known)
        dropped += rejected
        self.record.stages.append(cost_of(name, jobs, updates, time.monotonic() - began))
        self.record.dropped += dropped
        if self.context.server_transforms and updates:
            updates = self._transformed(updates, jobs, stage, name)
        if self.downlink:
            self.downlink.delivered(jobs, [update.client for update in updates])
        if self.frozen_parts:
            self.frozen_parts.delivered([update.client for update in updates])
        if commit:
            self._commit(updates, stage, keeping)
        self._need_required(updates, clients, name, dropped)
        self._need_quorum(updates, len(jobs), name, dropped)
        return updates

    def _transformed(self, updates: Sequence[Update], jobs: Sequence[TrainJob], stage: int, name: str) -> list[Update]:
        """Return the updates of a stage after the server's transforms; models that stay at clients are left alone."""
        sent = {job.client: job.payload for job in jobs if not job.work.stays}
        received = [update for update in updates if update.client in sent]
        if not received:
            return list(updates)
        title = f"round {self.number}: transform updates of {name}"
        changed = self.engine.run("transform-updates", title, self.context, received, sent, self.number, stage)
        by_client = {update.client: update for update in (*updates, *changed)}
        return [by_client[update.client] for update in updates]

    def as_sent(self, model: ModelRef) -> ModelRef:
        """Return a model as the clients of this round have it: it differs where ``downlink_transforms`` compress it."""
        return self.downlink.as_sent(model) if self.downlink else model

    def _commit(self, updates: Sequence[Update], stage: int, keeping: Mapping[str, tuple[str, ...]]) -> None:
        """Record updates and what their clients keep."""
        self.record.updates.setdefault(stage, []).extend(updates)
        self.state.private |= {u.client: u.state for u in updates if u.state}
        self.keeping |= {u.client: keeping[u.client] for u in updates if u.client in keeping}

    def _need_required(
        self, updates: Sequence[Update], asked: Sequence[str], name: str, dropped: Sequence[Dropped]
    ) -> None:
        reported = {update.client for update in updates}
        lacking = [client for client in self.settings.required if client in asked and client not in reported]
        if not lacking:
            return
        reasons = {entry.client: entry.reason for entry in dropped}
        raise UserError(
            f"a required client dropped out of round {self.number}, {name}",
            where="federation.required",
            expected=", ".join(self.settings.required),
            found="; ".join(f"{client}: {reasons.get(client, 'no update')}" for client in lacking),
            hint="finished clients are stored: fix the cause and run again",
        )

    def _need_quorum(self, updates: Sequence[Update], asked: int, name: str, dropped: Sequence[Dropped]) -> None:
        required = required_updates(self.settings.quorum, asked)
        if len(updates) >= required:
            return
        raise UserError(
            f"too few clients reported in round {self.number}, {name}",
            where="federation.quorum",
            expected=f"at least {required} of {asked} clients",
            found=f"{len(updates)}; " + "; ".join(f"{d.client}: {d.reason}" for d in dropped[:5]),
            hint="finished clients are stored: fix the cause and run again",
        )

    def aggregate(
        self,
        updates: Sequence[Update],
        start: ModelRef,
        *,
        name: str,
        weights: Sequence[float] | None = None,
        spec: AggregatorSpec | None = None,
        facts: Mapping[str, Any] | None = None,
        starts: Mapping[str, ModelRef] | None = None,
    ) -> ModelRef:
        """Combine updates into one global model.

        Args:
            updates: In client-id order.
            start: The model that the clients started from.
            name: Name of the stage and its task.
            weights: One per update, summing to 1. Default: those of ``aggregation.weighting``.
            spec: The method's own aggregator. Default: the run's (``aggregation.name``).
            facts: Plain numbers that the method's own aggregator needs.
            starts: Client -> the model that it started from, as it was sent, where each had its own.
        """
        given = tuple(weights) if weights else None
        if spec is None and given is None:
            self._count_participations(updates)
            samples = {update.client: update.samples for update in updates}
            counts = self.state.participations
            given = round_weights(self.context.weighting, self.clients, list(samples), self.number, counts, samples)
        chosen = spec or self.context.aggregator
        own = tuple(starts[update.client] for update in updates) if starts else None
        job = AggregationJob(chosen, tuple(updates), self.as_sent(start), given, facts=facts or {}, starts=own)
        done = self._aggregate(job, name)
        for model, ref in done.models.items():
            if model != GLOBAL:
                self.state.models[model] = ref
        self.state.evaluated = done.evaluated
        return done.models[GLOBAL]

    def _count_participations(self, updates: Sequence[Update]) -> None:
        """Count this round for the clients of these updates, once however often they are averaged in it."""
        if self.context.weighting.name == "fedfreq":
            before = self.participations_before
            self.state.participations |= {u.client: before.get(u.client, 0) + 1 for u in updates}

    def mix(
        self,
        updates: Sequence[Update],
        start: ModelRef | None = None,
        *,
        name: str,
        rows: Mapping[str, Mapping[str, float]] | None = None,
        spec: AggregatorSpec | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> dict[str, ModelRef]:
        """Mix N updates into M models, each with its own weights.

        Args:
            updates: In client-id order.
            start: The model that the clients started from, if there was one.
            name: Name of the stage and its task.
            rows: Name of a model -> client -> weight, each row summing to 1; clients that are left out have weight 0.
            spec: An aggregator that decides the models and their weights itself, in place of ``rows``.
            facts: Plain numbers that the aggregator needs.

        Returns:
            Name -> model.
        """
        clients = [update.client for update in updates]
        given = {model: tuple(row.get(c, 0.0) for c in clients) for model, row in rows.items()} if rows else None
        begun = start and self.as_sent(start)
        job = AggregationJob(spec or AggregatorSpec(), tuple(updates), begun, rows=given, facts=facts or {})
        return self._aggregate(job, name).models

    def average(self, updates: Sequence[Update], weights: Sequence[float] | None = None, *, name: str) -> ModelRef:
        """Average the clients' models, by default weighted by sample count, whatever the run's aggregator."""
        given = tuple(weights) if weights else None
        return self._aggregate(AggregationJob(AggregatorSpec(), tuple(updates), weights=given), name).models[GLOBAL]

    def _aggregate(self, job: "AggregationJob", name: str) -> "Aggregated":
        """Run an aggregation with the tensors that its aggregator kept, and keep those that it returns."""
        namespace = job.spec.name.rpartition(".")[2]
        job = replace(job, state=self.state.server.get(namespace))
        with self.logged(name, len(job.updates)):
            done: Aggregated = self.engine.run("aggregate", f"round {self.number}: {name}", self.context, job)
        if done.state is not None:
            self.state.server[namespace] = done.state
        if done.mixing is not None:
            self.state.server[MIXING] = done.mixing
        if GLOBAL in done.weights:
            self.record.weights = done.weights[GLOBAL]
        return done

    def cluster(self, updates: Sequence[Update], start: ModelRef, k: int, prefix: str, *, name: str) -> dict[str, int]:
        """Cluster clients by how their models changed, with k-means.

        Args:
            updates: Of the clients.
            start: The model that they started from.
            k: Number of clusters.
            prefix: Prefix of the names of the parameters that are compared.
            name: Name of the stage and its task.

        Returns:
            Client id -> cluster, 0..K'-1.
        """
        from tasks.server.clustering import cluster_models

        seed = derive_seed(self.context.seed, "k-means", self.number)
        refs = [update.model for update in updates]
        numbers = self.server_task(
            cluster_models, refs, self.as_sent(start), prefix, k, seed, name=name, clients=len(updates)
        )
        return {update.client: number for update, number in zip(updates, numbers, strict=True)}
