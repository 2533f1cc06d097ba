"""Logging to MLflow: what is logged and what stays. Tests with a database copy one that was created once."""

import shutil
import socket
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest

from models.errors import UserError
from tasks.core.round_summary import best_round
from tasks.tracking import mlflow_runs
from tasks.tracking.data_version import find_data_version
from tasks.tracking.mlflow_client import CLIENT_DEFAULTS
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.uri import resolve_uri
from tests.support.fabricated import fabricated_run

SETTINGS = TrackingSettings(keep_rounds=2)
TAGS = {"fedscene.run_id": "fmman-seed1", "fedscene.data_version": "abc123"}


@pytest.fixture
def runs(tmp_path, migrated):
    shutil.copy(migrated, tmp_path / "mlflow.db")
    return tmp_path


def _client(runs: Path):
    from mlflow.tracking import MlflowClient

    return MlflowClient(resolve_uri(SETTINGS, runs))


def _files(runs: Path, run_id: str) -> list[str]:
    root = next((runs / "mlartifacts").glob(f"{run_id}/artifacts/rounds"))
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.mark.integration
def test_rounds_are_logged_once_and_old_weights_are_deleted(runs):
    records = fabricated_run(runs / "fmman-seed1", 5)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "fmman", {"train.lr": 0.01}, TAGS)
    assert mlflow_runs.log_missing(SETTINGS, runs, run_id, runs / "fmman-seed1") == [1, 2, 3, 4, 5]
    assert mlflow_runs.log_missing(SETTINGS, runs, run_id, runs / "fmman-seed1") == []
    history = _client(runs).get_metric_history(run_id, "macro_ap")
    assert [(point.step, point.value) for point in history] == [(r.round, r.metrics["macro_ap"]) for r in records]
    best = best_round(records)
    kept = [name for name in _files(runs, run_id) if name.endswith("model.safetensors")]
    assert kept == [f"{n:04d}/model.safetensors" for n in sorted({best, 4, 5})]
    assert sum(name.endswith("round.json") for name in _files(runs, run_id)) == 5
    assert _client(runs).get_run(run_id).data.tags["fedscene.best_round"] == str(best)


@pytest.mark.integration
def test_the_best_rounds_weights_stay_until_a_better_one_comes(runs):
    root = runs / "r"
    records = fabricated_run(root, 5)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    for record, value in zip(records, (0.9, 0.1, 0.2, 0.3, 0.95), strict=True):
        record.metrics["macro_ap"] = value
        assert mlflow_runs.log_round(SETTINGS, runs, run_id, record, root / "rounds" / f"{record.round:04d}")
        if record.round == 4:
            assert [n for n in _files(runs, run_id) if n.endswith("/model.safetensors")] == [
                f"{k:04d}/model.safetensors" for k in (1, 3, 4)
            ]
    kept = [n for n in _files(runs, run_id) if n.endswith("/model.safetensors")]
    assert kept == [f"{k:04d}/model.safetensors" for k in (4, 5)]


@pytest.mark.integration
def test_resume_finds_its_run_and_completes_a_partly_logged_round(runs):
    records = fabricated_run(runs / "r", 2)
    first = mlflow_runs.open_run(SETTINGS, runs, "r", {"train.lr": 0.01}, TAGS)
    folder = runs / "r" / "rounds" / "0001"
    mlflow_runs.log_metrics(_client(runs), first, records[0], 1000)  # killed after the metrics
    again = mlflow_runs.open_run(SETTINGS, runs, "r", {"train.lr": 0.02, "new": 1}, TAGS | {"commit": "f00"})
    assert again == first
    assert mlflow_runs.log_round(SETTINGS, runs, first, records[0], folder)
    assert len(_client(runs).get_metric_history(first, "macro_ap")) == 1
    assert _files(runs, first) == [
        f"0001/{n}"
        for n in ("model-cluster-0.safetensors", "model-cluster-1.safetensors", "model.safetensors", "round.json")
    ]
    data = _client(runs).get_run(first).data
    assert data.params == {"train.lr": "0.01", "new": "1"}
    assert data.tags["fedscene.changed_params"] == "train.lr: 0.01 -> 0.02"
    assert find_data_version(SETTINGS, runs, first) == "abc123"
    with pytest.raises(UserError, match="nonesuch"):
        find_data_version(SETTINGS, runs, "nonesuch")


@pytest.mark.integration
def test_an_error_before_training_does_not_promise_a_complete_run_folder(runs):
    with sqlite3.connect(runs / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'of a later MLflow'")
    with pytest.raises(UserError, match="of a later MLflow") as caught:
        mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    assert "complete" not in caught.value.hint and "tracking.enabled" in caught.value.hint
    with pytest.raises(UserError, match="own folder is complete"):
        mlflow_runs.finish_run(SETTINGS, runs, "r", "FINISHED")


@pytest.mark.integration
def test_a_missing_database_driver_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg2", None)  # as if it were not installed
    uri = "postgresql+psycopg2://u:secret@127.0.0.1/x"
    with pytest.raises(UserError, match=r"psycopg2[\s\S]*install it") as caught:
        mlflow_runs.open_run(TrackingSettings(uri=uri), tmp_path, "r", {}, TAGS)
    assert "secret" not in str(caught.value)


@pytest.mark.integration
def test_a_hanging_server_times_out(tmp_path, monkeypatch):
    assert int(CLIENT_DEFAULTS["MLFLOW_HTTP_REQUEST_TIMEOUT"]) <= 30
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match="MLflow failed"):
            mlflow_runs.open_run(TrackingSettings(uri=uri), tmp_path, "r", {}, TAGS)


@pytest.mark.integration
def test_models_load_without_our_code_and_without_pickle(runs, monkeypatch):
    import mlflow.pyfunc
    import torch

    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 4)

        def forward(self, images):  # [N,3,S,S] uint8 -> [N,4]
            return torch.sigmoid(self.layer(images.float().mean((2, 3)) / 255))

    class Branches(torch.nn.Module):
        def forward(self, images):
            return images if float(images.float().sum()) > 1 else -images

    module, rng = Tiny(), np.random.default_rng(0)
    example = rng.integers(0, 256, (1, 3, 8, 8), dtype=np.uint8)
    report = runs / "report"
    report.mkdir()
    (report / "report.md").write_text("# done")
    run_id = mlflow_runs.open_run(SETTINGS, runs, "m", {}, TAGS)
    uris = mlflow_runs.finish_run(
        SETTINGS,
        runs,
        run_id,
        "FINISHED",
        [report],
        {
            "last": (2, lambda: (module, example, {"labels": ["a", "b"]})),
            "best": (2, lambda: pytest.fail("the same round is not exported twice")),
            "bad": (1, lambda: (Branches(), example, {})),
        },
    )
    assert uris["last"] == uris["best"] and "bad" not in uris
    run = _client(runs).get_run(run_id)
    assert run.info.status == "FINISHED" and "fedscene.model_error.bad" in run.data.tags
    assert [entry.path for entry in _client(runs).list_artifacts(run_id, "report")] == ["report/report.md"]
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(resolve_uri(SETTINGS, runs))
    try:
        loaded = mlflow.pyfunc.load_model(uris["last"])
    finally:
        mlflow.set_tracking_uri(before)
    images = rng.integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    assert loaded.metadata.metadata == {"labels": ["a", "b"]}
    assert loaded.metadata.get_input_schema().inputs[0].shape == (-1, 3, 8, 8)
    expected = module(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_array_equal(loaded.predict(images), expected)


@pytest.mark.integration
def test_a_stopped_run_has_its_reason_as_a_tag_until_it_goes_on(runs):
    run_id = mlflow_runs.open_run(SETTINGS, runs, "fmman", {}, TAGS)

    def tag_after(**options):
        mlflow_runs.finish_run(SETTINGS, runs, run_id, "FINISHED", **options)
        return _client(runs).get_run(run_id).data.tags.get("fedscene.stopped")

    assert tag_after() is None
    assert tag_after(stopped="2 hours are over, the limit is 2") == "2 hours are over, the limit is 2"
    assert tag_after(stopped="another") == "another"
    assert tag_after() is None
