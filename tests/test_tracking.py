"""MLflow: what is logged, once, and what is kept. The tests with a database copy one that was made once."""

import math
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from fabricated import fabricated_record, fabricated_run

from models.errors import UserError
from tasks import tracking, tracking_settings
from tasks.summary import best_round
from tasks.tracking_settings import TrackingSettings, best_tags, plan_params, resolve_uri

SETTINGS = TrackingSettings(keep_rounds=2)
TAGS = {"fedscene.run_id": "fmman-seed1", "fedscene.data_version": "abc123"}


def test_best_round_is_the_earliest_highest():
    records = [fabricated_record(n) for n in (1, 2, 3, 4)]
    for record, value in zip(records, (0.2, 0.7, math.nan, 0.7), strict=True):
        record.metrics["macro_ap"] = value
    assert best_round(records) == 2
    assert best_round([records[2]]) == 3
    tags: dict[str, str] = {}
    for record in records:
        tags |= best_tags(tags, record)
    assert tags["fedscene.best_round"] == "2"


def test_params_are_cut_and_changes_become_a_tag():
    new, tags = plan_params({"a": "x" * 7000, "b": 2, "c": 3}, {"b": "1", "c": "3"}, {"t": "y" * 9000})
    assert new == {"a": "x" * 6000}
    assert tags["fedscene.cut_params"] == "a"
    assert tags["fedscene.changed_params"] == "b: 1 -> 2"
    assert len(tags["t"]) == 8000


def test_passwords_in_addresses_are_not_shown(tmp_path):
    with pytest.raises(UserError) as caught:
        tracking_settings.check(TrackingSettings(uri="http://me:secret@127.0.0.1:9", timeout=1), tmp_path)
    assert "secret" not in str(caught.value) and "http://***@127.0.0.1:9" in str(caught.value)


def test_uri_is_absolute_and_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri(SETTINGS, Path("runs")) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert resolve_uri(TrackingSettings(uri="sqlite:///x.db"), tmp_path) == f"sqlite:///{tmp_path}/x.db"
    assert resolve_uri(TrackingSettings(uri="http://host:1"), tmp_path) == "http://host:1"
    with pytest.raises(UserError, match="plain folders"):
        resolve_uri(TrackingSettings(uri="file:/tmp/mlruns"), tmp_path)


class _Answer(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self):
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.mark.parametrize(("code", "good"), [(200, True), (401, True), (503, False)])
def test_check_asks_the_server(tmp_path, code, good):
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (_Answer,), {"code": code}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = TrackingSettings(uri=f"http://127.0.0.1:{server.server_port}", timeout=3)
    try:
        if good:
            tracking_settings.check(settings, tmp_path)
        else:
            with pytest.raises(UserError, match="does not answer"):
                tracking_settings.check(settings, tmp_path)
    finally:
        server.shutdown()
        server.server_close()


def test_check_names_a_dead_server_and_a_wrong_file(tmp_path):
    with pytest.raises(UserError, match=r"http://127.0.0.1:9.*\n(.*\n)*.*tracking.enabled"):
        tracking_settings.check(TrackingSettings(uri="http://127.0.0.1:9", timeout=1), tmp_path)
    tracking_settings.check(SETTINGS, tmp_path / "new")
    (tmp_path / "mlflow.db").write_text("I am a letter, not a database")
    with pytest.raises(UserError, match="not an SQLite file"):
        tracking_settings.check(SETTINGS, tmp_path)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    tracking.open_run(TrackingSettings(experiment="other"), folder, "x", {}, {"fedscene.run_id": "x"})
    return folder / "mlflow.db"


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
def test_rounds_are_logged_once_and_old_weights_go(runs):
    records = fabricated_run(runs / "fmman-seed1", 5)
    run_id = tracking.open_run(SETTINGS, runs, "fmman", {"train.lr": 0.01}, TAGS)
    assert tracking.log_missing(SETTINGS, runs, run_id, runs / "fmman-seed1") == [1, 2, 3, 4, 5]
    assert tracking.log_missing(SETTINGS, runs, run_id, runs / "fmman-seed1") == []
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
    run_id = tracking.open_run(SETTINGS, runs, "r", {}, TAGS)
    for record, value in zip(records, (0.9, 0.1, 0.2, 0.3, 0.95), strict=True):
        record.metrics["macro_ap"] = value
        assert tracking.log_round(SETTINGS, runs, run_id, record, root / "rounds" / f"{record.round:04d}")
        if record.round == 4:
            assert [n for n in _files(runs, run_id) if "model" in n] == [
                f"{k:04d}/model.safetensors" for k in (1, 3, 4)
            ]
    assert [n for n in _files(runs, run_id) if "model" in n] == [f"{k:04d}/model.safetensors" for k in (4, 5)]


@pytest.mark.integration
def test_resume_finds_its_run_and_repairs_a_half_logged_round(runs):
    records = fabricated_run(runs / "r", 2)
    first = tracking.open_run(SETTINGS, runs, "r", {"train.lr": 0.01}, TAGS)
    folder = runs / "r" / "rounds" / "0001"
    tracking._log_metrics(_client(runs), first, records[0], 1000)  # killed after the metrics
    again = tracking.open_run(SETTINGS, runs, "r", {"train.lr": 0.02, "new": 1}, TAGS | {"commit": "f00"})
    assert again == first
    assert tracking.log_round(SETTINGS, runs, first, records[0], folder)
    assert len(_client(runs).get_metric_history(first, "macro_ap")) == 1
    assert _files(runs, first) == [
        f"0001/{n}" for n in ("model.safetensors", "prototype-0.safetensors", "prototype-1.safetensors", "round.json")
    ]
    data = _client(runs).get_run(first).data
    assert data.params == {"train.lr": "0.01", "new": "1"}
    assert data.tags["fedscene.changed_params"] == "train.lr: 0.01 -> 0.02"
    assert tracking.find_data_version(SETTINGS, runs, first) == "abc123"
    with pytest.raises(UserError, match="nonesuch"):
        tracking.find_data_version(SETTINGS, runs, "nonesuch")


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
    run_id = tracking.open_run(SETTINGS, runs, "m", {}, TAGS)
    uris = tracking.finish_run(
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
