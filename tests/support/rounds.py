"""Rounds with real training for tests: one narrow network, and `Federation` built in one place."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.engine.engines import Engine, LocalEngine
from flows.federation.federation import Federation
from flows.federation.progress import Quiet
from flows.federation.round import Setup
from flows.methods import load_method
from models.settings.model import ModelSettings
from tasks.client.objectives import load_objective
from tasks.core.context import RunContext
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.federation_settings import FederationSettings
from tasks.core.records import ModelRef
from tasks.core.round_state import RoundState
from tasks.core.store import Store
from tasks.core.train_settings import TrainSettings

SEED = 11
NARROW = {"name": "resnet18", "backbone": {"width": 0.125}}
LABEL_AWARE = {"backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2}}  # FMMAN's network, the default
PLAIN_SGD = {"optimizer": "sgd", "lr": 0.05, "grad_clip": None}


@dataclasses.dataclass(frozen=True)
class TinyData:
    """Folders of a data set and its partition, with the classes and each client's number of training images."""

    dataset: Path
    clients: Path
    classes: tuple[str, ...]
    sizes: dict[str, int]

    @property
    def ids(self) -> tuple[str, ...]:
        """The clients, in id order."""
        return tuple(self.sizes)


def partitioned(dataset: Path, folder: Path, **settings: Any) -> TinyData:
    """Partition a data set into ``folder``; the keyword arguments are settings of the partition."""
    from tasks.data.clients import load_clients
    from tasks.data.dataset import load_dataset
    from tasks.data.partition import PartitionSettings, partition

    partition(dataset, PartitionSettings(**({"clients": 4, "min_size": 4} | settings)), folder, seed=1)
    clients = load_clients(folder)
    sizes = {client: len(clients.indices[client]) for client in sorted(clients.ids)}
    return TinyData(dataset, folder, tuple(load_dataset(dataset).classes), sizes)


def make_context(
    data: TinyData,
    store: Path | str,
    *,
    objective: str = "bce",
    settings: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    network: Mapping[str, Any] | None = None,
    **changes: Any,
) -> tuple[RunContext, ModelRef]:
    """Return a run's context and its first global model.

    Args:
        data: What is trained on.
        store: The run's folder or address.
        objective: Name of the objective.
        settings: The objective's settings.
        train: Settings of local training beside one epoch in batches of 8.
        network: Settings of the network.
        changes: Other fields of the context.
    """
    from tasks.server.initial_model import frozen_embeddings, initial_model

    model = ModelSettings.model_validate(dict(network or NARROW))
    tables = frozen_embeddings(model, data.classes)
    context = RunContext(
        store=str(store),
        dataset=str(data.dataset),
        clients=str(data.clients),
        seed=SEED,
        classes=data.classes,
        image_size=32,
        tables=Store(str(store)).put_state("labels.safetensors", tables) if tables else None,
        model=model,
        train=TrainSettings.model_validate({"epochs": 1, "batch_size": 8} | dict(train or {})),
        objective=objective,
        objective_settings=load_objective(objective).Settings.model_validate(dict(settings or {})),
        bn_policy="avg",
        evaluation=EvaluationSettings(),
        fingerprint="test",
    )
    context = dataclasses.replace(context, **changes)
    return context, initial_model(context)


def make_federation(
    context: Any,
    method: Any,
    clients: Mapping[str, int],
    *,
    engine: Engine | None = None,
    number: int = 1,
    state: RoundState | ModelRef | None = None,
    facts: Mapping[str, Any] | None = None,
    name: str = "tested",
    **settings: Any,
) -> Federation:
    """Build one round's federation.

    Args:
        context: The run.
        method: The method's own settings.
        clients: Client id -> number of labelled training images.
        engine: Where tasks run; default: one thread of this process.
        number: The round.
        state: What it starts from; a model: the state with this global model.
        facts: Other fields of the setup (``unlabelled``, ``server_images``).
        name: The method's name.
        settings: Settings of the federation.
    """
    if isinstance(state, ModelRef):
        state = RoundState.starting_from(state)
    setup = Setup(
        context=context,
        settings=FederationSettings(**({"engine": "local", "workers": 1} | settings)),
        method_name=name,
        method=method,
        clients=clients,
        engine=engine or LocalEngine(1),
        progress=Quiet(),
        **(facts or {}),
    )
    return Federation(setup, number, state or RoundState())


def run_round(
    method: str,
    context: RunContext,
    start: ModelRef | RoundState,
    clients: Mapping[str, int],
    *,
    own: Mapping[str, Any] | None = None,
    before: Federation | None = None,
    engine: Engine | None = None,
    **settings: Any,
) -> Federation:
    """Run one round of a method; ``record.state`` is what it ends with.

    Args:
        method: Name of the method.
        context: The run.
        start: The global model, or the state, of the first round; later ones start from that of ``before``.
        clients: Client id -> number of training images.
        own: The method's own settings.
        before: The round before.
        engine: Where tasks run.
        settings: Settings of the federation.
    """
    module = load_method(method)
    number, state = (1, start) if before is None else (before.number + 1, before.record.state)
    settings = {"number": number, "state": state, "name": method} | settings
    fed = make_federation(context, module.Settings(**(own or {})), clients, engine=engine, **settings)
    fed.record.state = module.run_round(fed, fed.state)
    return fed


def run_rounds(rounds: int, *arguments: Any, **options: Any) -> list[Federation]:
    """Run several rounds, one after the other; the other arguments are those of `run_round`."""
    done: list[Federation] = []
    for _ in range(rounds):
        done.append(run_round(*arguments, before=done[-1] if done else None, **options))
    return done
