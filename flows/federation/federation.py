"""The operations of a round: sample, train, cluster, aggregate. Each call runs one or more tasks of the engine.

A ``Federation`` lives for one round. It records each stage's cost and the dropped clients, so that a method's module
in ``flows/methods`` contains only the algorithm.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from flows.engine.engines import Engine
from flows.federation.jobs import cost_of, make_jobs, required_updates, run_jobs
from flows.federation.progress import Progress
from models.errors import UserError
from models.registry import NETWORKS
from tasks.client.objectives import Needed, load_objective
from tasks.client.regularisers import RegulariserSpec, load_regulariser
from tasks.client.train import Init, TrainJob
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.randomness import derive_seed, numpy_generator
from tasks.core.records import Dropped, ModelRef, RoundRecord, StageLog, Update


class Federation:
    """One round of a run.

    Args:
        context: The run, as passed to tasks.
        settings: The federation's settings.
        method: The method's own settings.
        clients: All clients of the partition, id -> number of training images.
        engine: Runs the tasks.
        number: The round, from 1.
        states: Client id -> its private state from earlier rounds.
        progress: Notified of every stage.
        server_state: The method's server state of the previous round.

    Attributes:
        server_state: The method's tensors at the server, stored with the round and passed to the next one.
        personal_states: Client id -> personal tensors (``model/<name>``) that replace the global model's when it is
            evaluated; empty: the global model is evaluated as it is.
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
        server_state: ModelRef | None = None,
    ) -> None:
        self.context, self.settings, self.method = context, settings, method
        self.clients, self.engine, self.number, self.progress = clients, engine, number, progress
        self.server_state = server_state
        self.personal_states: dict[str, ModelRef] = {}
        self.record = RoundRecord(round=number, model=ModelRef("", "", 0), client_states=dict(states))

    def sample(self) -> list[str]:
        """Return the round's participants in id order: all, or ``clients_per_round`` sampled without replacement."""
        ids = sorted(self.clients)
        count = self.settings.clients_per_round
        if count is not None and count < len(ids):
            rng = numpy_generator(self.context.seed, "sample clients", self.number)
            ids = sorted(rng.choice(ids, size=count, replace=False).tolist())
        return self.choose(ids)

    def choose(self, ids: Sequence[str]) -> list[str]:
        """Make these clients the round's participants, in id order: a method's own choice."""
        self.record.participants = sorted(ids)
        return self.record.participants

    def train(
        self,
        clients: Sequence[str],
        start: ModelRef | Mapping[str, ModelRef],
        *,
        stage: int,
        name: str,
        references: Sequence[ModelRef] | None = None,
        cluster_of: Mapping[str, int] | None = None,
        init: Init = "start",
        already_at_client: bool = False,
        regulariser: RegulariserSpec | Mapping[str, RegulariserSpec] | None = None,
        server_tensors: ModelRef | None = None,
        server_owned: bool = False,
    ) -> list[Update]:
        """Train the given clients locally.

        Args:
            clients: The clients.
            start: The weights they start from, one for all or one each.
            stage: Number of the stage; part of every seed.
            name: Name of the stage and its tasks.
            references: Frozen models that are sent along if the objective or the regulariser needs them. Default: the
                model that the client's training starts from; an empty sequence sends none.
            cluster_of: Each client's cluster among the given references.
            init: ``best_cluster``: each client starts from the reference with its lowest loss.
            already_at_client: The clients have the start already, so it is not sent.
            regulariser: What the method adds to the loss, one for all or one each.
            server_tensors: Tensors of the method that all clients are sent, for the regulariser.
            server_owned: The clients' private tensors come from the server.

        Returns:
            The valid updates in client-id order.

        Raises:
            UserError: If fewer clients than the quorum report.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(clients))
        need: Needed = "all" if init == "best_cluster" else self._references_needed(regulariser)
        states = self.record.client_states
        jobs = make_jobs(
            clients, self.number, stage, start, references, cluster_of, need, init, states, regulariser, server_tensors
        )
        reported, dropped = run_jobs(self.engine, self.context, self.settings, jobs, name, self.progress.clients_done)
        updates, rejected = self.engine.run(
            "check-updates",
            f"round {self.number}: check updates of {name}",
            self.context,
            reported,
            jobs[0].start,
            stage,
            self.clients,
        )
        seconds = time.monotonic() - began
        self.record.stages.append(
            cost_of(name, jobs, updates, seconds, already_at_client=already_at_client, server_owned=server_owned)
        )
        self.record.dropped += [*dropped, *rejected]
        self.record.updates.setdefault(stage, []).extend(updates)
        self.record.client_states |= {u.client: u.state for u in updates if u.state}
        self._need_quorum(updates, jobs, name, [*dropped, *rejected])
        return updates

    def _references_needed(self, regulariser: RegulariserSpec | Mapping[str, RegulariserSpec] | None) -> Needed:
        """Return which reference models the objective and the regulariser need."""
        specs = regulariser.values() if isinstance(regulariser, Mapping) else [regulariser]
        if any(spec and load_regulariser(spec.name).needs_reference(spec.values) for spec in specs):
            return "all"
        return load_objective(self.context.objective).references_needed(self.context.objective_settings)

    def _need_quorum(
        self, updates: Sequence[Update], jobs: Sequence[TrainJob], name: str, dropped: Sequence[Dropped]
    ) -> None:
        required = required_updates(self.settings.quorum, len(jobs))
        if len(updates) >= required:
            return
        raise UserError(
            f"too few clients reported in round {self.number}, {name}",
            where="federation.quorum",
            expected=f"at least {required} of {len(jobs)} clients",
            found=f"{len(updates)}; " + "; ".join(f"{d.client}: {d.reason}" for d in dropped[:5]),
            hint="finished clients are stored: fix the cause and run again",
        )

    def cluster(
        self, updates: Sequence[Update], start: ModelRef, k: int, how: str, prefix: str | None, *, name: str
    ) -> dict[str, int]:
        """Cluster clients by how their models changed (``kmeans``) or at random (``random``).

        Returns:
            Client id -> cluster, 0..K'-1.

        Raises:
            UserError: If the network names no parameters to cluster on and none are set.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(updates))
        if how == "random":
            from tasks.server.clustering import random_clusters

            # The purpose is part of every seed: never changed.
            rng = numpy_generator(self.context.seed, "random groups", self.number)
            numbers = random_clusters(len(updates), k, rng)
        else:
            prefix = prefix or NETWORKS[self.context.model.name].cluster_prefix
            if prefix is None:
                raise UserError(
                    f"network {self.context.model.name} names no layer to cluster clients on",
                    where="method.fmman.cluster_on",
                    hint="set it to a prefix of the parameter names, for instance backbone.layer4",
                )
            seed = derive_seed(self.context.seed, "k-means", self.number)
            refs = [update.model for update in updates]
            title = f"round {self.number}: {name}"
            numbers = self.engine.run("cluster-models", title, self.context, refs, start, prefix, k, seed)
        self.record.stages.append(StageLog(name, seconds=time.monotonic() - began, clients=len(updates)))
        return {update.client: number for update, number in zip(updates, numbers, strict=True)}

    def combine(self, updates: Sequence[Update], weights: Sequence[float], *, name: str, rule: Any = None) -> ModelRef:
        """Combine the clients' models by the weighted mean or another rule.

        Args:
            updates: In client-id order.
            weights: One per update, summing to 1.
            name: Name of the stage and its task.
            rule: ``rule(values, weights) -> tensor`` for the values of one name: a module-level function, or
                ``functools.partial`` of one if it has a setting.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(updates))
        extra = () if rule is None else (rule,)
        refs = [update.model for update in updates]
        title = f"round {self.number}: {name}"
        ref: ModelRef = self.engine.run("combine", title, self.context, refs, list(weights), *extra)
        self.record.weights = {u.client: weight for u, weight in zip(updates, weights, strict=True)}
        self.record.stages.append(StageLog(name, seconds=time.monotonic() - began, clients=len(updates)))
        return ref

    def average(self, updates: Sequence[Update], *, name: str) -> ModelRef:
        """Average the clients' models, weighted by sample count M_i / sum M."""
        from tasks.server.aggregation import sample_count_weights

        return self.combine(updates, sample_count_weights([update.samples for update in updates]), name=name)

    def average_loss_weighted(self, updates: Sequence[Update], mode: Any, *, name: str) -> ModelRef:
        """Average by FMMAN's eq 15, normalised: loss times sample count. Fall back to sample counts, with a note."""
        from tasks.server.aggregation import loss_weights

        losses = [update.mean("classification") for update in updates]
        weights, note = loss_weights(losses, [update.samples for update in updates], mode)
        if note:
            self.record.notes.append(f"{name}: {note}")
        return self.combine(updates, weights, name=name)

    def server_task(self, task: str, *args: Any, name: str, clients: int = 0) -> Any:
        """Run a task of ``tasks.registry`` as ``function(context, *args)`` and log it as a stage of the round."""
        began = time.monotonic()
        self.progress.stage(self.number, name, clients)
        result = self.engine.run(task, f"round {self.number}: {name}", self.context, *args)
        self.record.stages.append(StageLog(name, seconds=time.monotonic() - began, clients=clients))
        return result

    def client_losses(self, model: ModelRef, *, name: str, split: str = "val") -> dict[str, tuple[float, int]]:
        """Return the loss of a model at every client, whether it takes part or not.

        Args:
            model: The model.
            name: Name of the stage.
            split: The local images to evaluate it on: ``val`` or ``train``.

        Returns:
            Client id -> (mean loss of the kind of problem, number of images); the loss is NaN without images.
        """
        ids = sorted(self.clients)
        losses: dict[str, tuple[float, int]] = self.server_task(
            "evaluate-clients", ids, model, split, name=name, clients=len(ids)
        )
        log = self.record.stages[-1]
        log.bytes_down = log.bytes_down_naive = len(ids) * model.bytes
        return losses

    def record_clusters(self, cluster_of: Mapping[str, int], prototypes: Sequence[ModelRef]) -> None:
        """Record the clients' clusters and the cluster models."""
        self.record.cluster_of, self.record.cluster_models = dict(cluster_of), list(prototypes)
