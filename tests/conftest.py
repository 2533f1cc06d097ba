"""Shared fixtures: a tiny drawn data set and runs of a narrow network on it."""

import dataclasses
import os
from pathlib import Path

import pytest

from models.settings import ModelSettings
from tasks.client.objectives import load_objective
from tasks.core.context import RunContext
from tasks.core.store import Store
from tasks.core.train_settings import TrainSettings

# Tests run beside each other: more threads than cores would wait for each other in every small operation.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SEED = 11
NETWORK = {"backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2}}


@dataclasses.dataclass(frozen=True)
class TinyData:
    """Folders of 64 drawn images of 32 pixels, 44 of them for training, dealt to four clients of 11."""

    dataset: Path
    clients: Path
    classes: tuple[str, ...]
    ids: tuple[str, ...]


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory) -> TinyData:
    from tasks.data.clients import load_clients
    from tasks.data.dataset import load_dataset
    from tasks.data.ingest.ingest import IngestSettings, ingest
    from tasks.data.partition import PartitionSettings, partition

    root = tmp_path_factory.mktemp("tiny")
    ingest(IngestSettings(image_size=32, synthetic={"images": 64, "sites": 3}), root / "dataset", seed=1)
    partition(root / "dataset", PartitionSettings(scheme="iid", clients=4, min_size=4), root / "clients", seed=1)
    classes = tuple(load_dataset(root / "dataset").classes)
    return TinyData(root / "dataset", root / "clients", classes, tuple(load_clients(root / "clients").ids))


@pytest.fixture
def make_run(tiny_data, tmp_path):
    """``make_run(name="run", objective="fmman", train={}, network={}, ...) -> (context, first global model)``."""
    from tasks.core.evaluation_settings import EvaluationSettings
    from tasks.server.initial_model import fixed_tables, initial_model

    def build(name="run", objective="fmman", settings=None, train=None, network=None, **changes):
        store = str(tmp_path / name) if "://" not in name else name
        model = ModelSettings.model_validate(network or NETWORK)
        tables = fixed_tables(model, tiny_data.classes)
        ref = Store(store).put_state("labels.safetensors", tables) if tables else None
        context = RunContext(
            store=store,
            dataset=str(tiny_data.dataset),
            clients=str(tiny_data.clients),
            seed=SEED,
            classes=tiny_data.classes,
            image_size=32,
            tables=ref,
            model=model,
            train=TrainSettings.model_validate({"epochs": 1, "batch_size": 8} | (train or {})),
            objective=objective,
            objective_settings=load_objective(objective).Settings.model_validate(settings or {}),
            bn_policy="avg",
            evaluation=EvaluationSettings(),
            fingerprint="test",
        )
        context = dataclasses.replace(context, **changes)
        return context, initial_model(context)

    return build


@pytest.fixture(scope="session")
def migrated(tmp_path_factory) -> Path:
    """An MLflow database with one run in an experiment of its own; making one takes seconds, so tests copy it."""
    from tasks.tracking import mlflow_runs
    from tasks.tracking.settings import TrackingSettings

    folder = tmp_path_factory.mktemp("mlflow")
    mlflow_runs.open_run(TrackingSettings(experiment="other"), folder, "x", {}, {"fedscene.run_id": "x"})
    return folder / "mlflow.db"
