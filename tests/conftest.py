"""Shared fixtures: a tiny synthetic data set and runs of a narrow network on it."""

import os
from pathlib import Path

import pytest

from tests.support.blank_figures import BlankFigures
from tests.support.rounds import LABEL_AWARE, TinyData, make_context, partitioned

# Tests run beside each other: more threads than cores would wait for each other in every small operation.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    config.pluginmanager.register(BlankFigures())


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory) -> TinyData:
    """64 synthetic images of 32 pixels, 44 of them for training, in four clients of 11."""
    from tasks.data.ingest.ingest import IngestSettings, ingest

    root = tmp_path_factory.mktemp("tiny")
    ingest(IngestSettings(image_size=32, synthetic={"images": 64, "sites": 3}), root / "dataset", seed=1)
    return partitioned(root / "dataset", root / "clients", scheme="iid")


@pytest.fixture
def make_run(tiny_data, tmp_path):
    """``make_run(name="run", objective="fmman", train={}, network={}, ...) -> (context, first global model)``."""

    def build(name="run", objective="fmman", settings=None, train=None, network=None, **changes):
        store = str(tmp_path / name) if "://" not in name else name
        given = {"settings": settings, "train": train, "network": network or LABEL_AWARE}
        return make_context(tiny_data, store, objective=objective, **given, **changes)

    return build


@pytest.fixture(scope="session")
def migrated(tmp_path_factory) -> Path:
    """An MLflow database with one run in its own experiment; making one takes seconds, so tests copy it."""
    from tasks.tracking import mlflow_runs
    from tasks.tracking.settings import TrackingSettings

    folder = tmp_path_factory.mktemp("mlflow")
    mlflow_runs.open_run(TrackingSettings(experiment="other"), folder, "x", {}, {"fedscene.run_id": "x"})
    return folder / "mlflow.db"
