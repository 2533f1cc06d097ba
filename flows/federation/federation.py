"""The run as a round sees it: sample, train, cluster, aggregate. Each call is one or more tasks of the engine.

A ``Federation`` lives for one round. It remembers what each stage cost and who was dropped, so that a round's
file in ``flows/methods`` holds nothing but the algorithm.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flows.engine.engines import Engine
from flows.federation.jobs import Need, cost_of, make_jobs, run_jobs
from flows.federation.progress import Progress
from models.errors import UserError
from models.registry import NETWORKS
from tasks.client.objectives import load_objective
from tasks.client.regularisers import RegulariserSpec, load_regulariser
from tasks.client.train import TrainJob
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.randomness import address, numpy_generator
from tasks.core.records import Dropped, ModelRef, RoundRecord, StageLog, Update


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
        server_state: What the method kept at the server in the round before.

    Attributes:
        server_state: The method's own tensors, kept with the round and handed to the next one; a round may set it.
        personal_states: Client id -> personal tensors (``model/<name>``), laid over the global model when it is scored;
            empty: the global model is scored as it is.
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
        """The round's participants in id order: all, or ``clients_per_round`` drawn without replacement."""
        ids = sorted(self.clients)
        wanted = self.settings.clients_per_round
        if wanted is not None and wanted < len(ids):
            rng = numpy_generator(self.context.seed, "sample clients", self.number)
            ids = sorted(rng.choice(ids, size=wanted, replace=False).tolist())
        return self.choose(ids)

    def choose(self, ids: Sequence[str]) -> list[str]:
        """Makes these clients the round's participants, in id order: a method's own choice."""
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
        own: Mapping[str, int] | None = None,
        start_from_best: bool = False,
        already_at_client: bool = False,
        term: RegulariserSpec | Mapping[str, RegulariserSpec] | None = None,
        shared: ModelRef | None = None,
        server_owned: bool = False,
    ) -> list[Update]:
        """Local training of the given clients.

        Args:
            clients: Who trains.
            start: The weights they start from, one for all or one each.
            stage: Number of the stage; part of every random draw's address.
            name: What the tasks are called.
            references: Frozen prototypes that are sent along where the objective or the term needs them. Default: the
                model that the client's training starts from.
            own: Each client's own group among the references that are given.
            start_from_best: Each client starts from the reference with its lowest loss.
            already_at_client: The client has the start already (its own last model), so it is not sent.
            term: What the method adds to the loss, for all or for each client.
            shared: Tensors of the method that all clients are sent, for the term.
            server_owned: The clients' own tensors come from the server.

        Returns:
            The updates that count, in client-id order.

        Raises:
            UserError: If fewer than the quorum answer.
        """
        began = time.monotonic()
        self.progress.stage(self.number, name, len(clients))
        need: Need = "all" if start_from_best else self._guides_needed(term)
        states = self.record.client_states
        jobs = make_jobs(
            clients, self.number, stage, start, references, own, need, start_from_best, states, term, shared
        )
        answered, dropped = run_jobs(self.engine, self.context, self.settings, jobs, name, self.progress.clients_done)
        updates, refused = self.engine.run(
            "check-updates",
            f"round {self.number}: check updates of {name}",
            self.context,
            answered,
            jobs[0].start,
            stage,
            self.clients,
        )
        seconds = time.monotonic() - began
        self.record.stages.append(
            cost_of(name, jobs, updates, seconds, already_at_client=already_at_client, server_owned=server_owned)
        )
        self.record.dropped += [*dropped, *refused]
        self.record.updates.setdefault(stage, []).extend(updates)
        self.record.client_states |= {u.client: u.state for u in updates if u.state}
        self._need_quorum(updates, jobs, name, [*dropped, *refused])
        return updates

    def _guides_needed(self, term: RegulariserSpec | Mapping[str, RegulariserSpec] | None) -> Need:
        """Which prototypes clients must be sent for the objective and the term."""
        specs = list(term.values()) if isinstance(term, Mapping) else [term] if term else []
        if any(load_regulariser(spec.name).needs_guide(spec.values) for spec in specs):
            return "all"
        need: Need = load_objective(self.context.objective).references_needed(self.context.objective_settings)
        return need

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
            from tasks.server.clustering import random_groups

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
        from tasks.server.aggregation import size_weights

        return self.combine(updates, size_weights([update.samples for update in updates]), name=name)

    def average_by_loss(self, updates: Sequence[Update], mode: Any, *, name: str) -> ModelRef:
        """FMMAN's eq 15, normalised: the mean by loss and image count. Falls back to size, with a note."""
        from tasks.server.aggregation import loss_weights

        losses = [update.mean("classification") for update in updates]
        weights, note = loss_weights(losses, [update.samples for update in updates], mode)
        if note:
            self.record.notes.append(f"{name}: {note}")
        return self.combine(updates, weights, name=name)

    def server_task(self, task: str, *args: Any, name: str, clients: int = 0) -> Any:
        """Runs a task of the catalogue as ``function(context, *args)`` and logs it as a stage of the round."""
        began = time.monotonic()
        self.progress.stage(self.number, name, clients)
        result = self.engine.run(task, f"round {self.number}: {name}", self.context, *args)
        self.record.stages.append(StageLog(name, seconds=time.monotonic() - began, clients=clients))
        return result

    def client_losses(self, model: ModelRef, *, name: str, split: str = "val") -> dict[str, tuple[float, int]]:
        """The loss of a model at every client, whether it takes part or not.

        Args:
            model: What is scored.
            name: What the stage is called.
            split: The clients' own images to score it on: ``val``, or ``train``.

        Returns:
            Client id -> (mean binary cross entropy per label, number of images); the loss is NaN without images.
        """
        ids = sorted(self.clients)
        losses: dict[str, tuple[float, int]] = self.server_task(
            "evaluate-clients", ids, model, split, name=name, clients=len(ids)
        )
        log = self.record.stages[-1]
        log.bytes_down = log.bytes_down_naive = len(ids) * model.bytes
        return losses

    def keep(self, groups: Mapping[str, int], prototypes: Sequence[ModelRef]) -> None:
        """Puts groups and prototypes into the round's record."""
        self.record.cluster_of, self.record.cluster_models = dict(groups), list(prototypes)
