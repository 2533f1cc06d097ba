"""A run that is repeated, asked for fewer rounds, or loses MLflow during training."""

import json
import logging
import shutil
import sqlite3
from pathlib import Path

import pytest

from flows.federate import federate
from flows.federation.progress import Quiet
from flows.run.inputs import DataPaths
from flows.run.lock import locked_run
from flows.settings.files import load_settings
from models.errors import UserError

SETS = (
    "ingest.image_size=32", "partition.scheme=iid", "partition.clients=4", "method.name=fedavg", "objective.name=bce",
    "model.name=resnet18", "train.epochs=1", "evaluation.every=2", "federation.rounds=3", "federation.workers=1",
    "tracking.log_models=false", "report.images=2",
)  # fmt: skip
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def run_in(tiny_data, migrated, tmp_path_factory):
    """``run_in(folder, *overrides, progress=None)``: federate with the runs and an MLflow database in ``folder``."""
    data = DataPaths(tiny_data.dataset, tiny_data.clients)

    def call(folder: Path, *overrides: str, progress=None):
        folder.mkdir(exist_ok=True)
        if not (folder / "mlflow.db").exists() and not (folder / "r").exists():
            shutil.copy(migrated, folder / "mlflow.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDSCENE_RUNS", str(folder))
            return federate(load_settings(None, ["tiny"], [*SETS, *overrides]), data, run_id="r", progress=progress)

    return call


@pytest.fixture(scope="module")
def finished(run_in, tmp_path_factory):
    """A folder with a finished run of three rounds, the first of which was not evaluated; and its summary."""
    folder = tmp_path_factory.mktemp("finished") / "runs"
    return folder, run_in(folder)


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished run's folder. MLflow's database names the first one's artifacts, so it takes its place."""
    shutil.copytree(finished[0], tmp_path / "runs")
    return tmp_path / "runs", finished[1]


def points(folder, key, run_id):
    with sqlite3.connect(folder / "mlflow.db") as database:
        query = "SELECT step, value FROM metrics WHERE key = ? AND run_uuid = ? ORDER BY step"
        return database.execute(query, (key, run_id)).fetchall()


def everything(folder):
    files = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    with sqlite3.connect(folder / "mlflow.db") as database:
        dump = list(database.iterdump())
    return {path: entry for path, entry in files.items() if path.name not in (".lock", "mlflow.db.lock")}, dump


def test_starting_a_finished_run_again_changes_nothing(finished, run_in):
    folder, summary = finished
    before = everything(folder)
    again = run_in(folder)
    assert (again.digest, again.mlflow_run_id) == (summary.digest, summary.mlflow_run_id)
    files, dump = everything(folder)
    assert [path for path in files if files[path] != before[0].get(path)] == [] and len(files) == len(before[0])
    assert dump == before[1]


def test_asking_for_fewer_rounds_reports_the_result_after_them_everywhere(copy, run_in):
    folder, whole = copy
    fewer = run_in(folder, "federation.rounds=1")
    assert fewer.rounds == 1 and fewer.digest == whole.records[0].model.digest != whole.digest
    assert not whole.records[0].metrics and fewer.metrics["macro_ap"] > 0
    report = json.loads((folder / "r/report/metrics.json").read_text())
    assert (report["rounds"], report["macro_ap"]) == (1, fewer.metrics["macro_ap"])
    assert points(folder, "round", fewer.mlflow_run_id) == [(1, 1.0)]
    assert points(folder, "macro_ap", fewer.mlflow_run_id) == [(1, fewer.metrics["macro_ap"])]
    again = run_in(folder)
    assert (again.digest, again.metrics, again.mlflow_run_id) == (whole.digest, whole.metrics, whole.mlflow_run_id)
    assert json.loads((folder / "r/report/metrics.json").read_text())["rounds"] == 3
    # The metrics of the first round, which was logged without them, are there now; nothing is there twice
    assert [step for step, _ in points(folder, "macro_ap", whole.mlflow_run_id)] == [1, 2, 3]
    assert [step for step, _ in points(folder, "round", whole.mlflow_run_id)] == [1, 2, 3]


def test_a_round_that_becomes_the_last_one_is_evaluated_as_any_last_round(tmp_path, run_in):
    class Stop(Quiet):
        def round_done(self, record, found=False):
            if record.round == 1 and not found:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in(tmp_path / "a", progress=Stop())
    late, straight = run_in(tmp_path / "a", "federation.rounds=1"), run_in(tmp_path / "b", "federation.rounds=1")
    assert late.digest == straight.digest and late.metrics == straight.metrics
    assert late.records[0].per_class == straight.records[0].per_class
    assert points(tmp_path / "a", "macro_ap", late.mlflow_run_id) == [(1, late.metrics["macro_ap"])]


def test_a_finished_round_that_was_not_tracked_before_a_kill_is_tracked_on_resume(tmp_path, run_in, monkeypatch):
    from flows.run.tracker import MlflowTracker

    def end(*_):
        raise SystemExit("killed")

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(MlflowTracker, "round_done", end)
        run_in(tmp_path / "a", "evaluation.every=1")
    assert (tmp_path / "a/r/rounds/0001/round.json").exists()
    (tmp_path / "a/r/left.safetensors.1-2.tmp").touch()
    summary = run_in(tmp_path / "a", "evaluation.every=1")
    assert [step for step, _ in points(tmp_path / "a", "macro_ap", summary.mlflow_run_id)] == [1, 2, 3]
    assert not list((tmp_path / "a/r").rglob("*.tmp")) and not (tmp_path / "a/r/updates").exists()


def test_a_database_deleted_during_a_run_does_not_end_it_and_resuming_logs_all_rounds(tmp_path, run_in, caplog):
    class Delete(Quiet):
        def round_done(self, record, found=False):
            if record.round == 1:
                (tmp_path / "a/mlflow.db").unlink()

    with caplog.at_level(logging.WARNING):
        summary = run_in(tmp_path / "a", progress=Delete())
    messages = [record.getMessage() for record in caplog.records if record.name == "flows.run.tracker"]
    assert summary.rounds == 3 and len(messages) == 2, messages
    assert "continues without MLflow" in messages[0] and "same command again" in messages[1]
    assert all(len(text.splitlines()) < 8 for text in messages)
    again = run_in(tmp_path / "a")
    assert again.digest == summary.digest
    assert [step for step, _ in points(tmp_path / "a", "round", again.mlflow_run_id)] == [1, 2, 3]


def test_a_database_locked_until_the_end_does_not_end_a_run(tmp_path, run_in, caplog):
    held = []

    class Lock(Quiet):
        def round_done(self, record, found=False):
            if record.round == 1:
                held.append(sqlite3.connect(tmp_path / "a/mlflow.db", isolation_level=None))
                held[0].execute("BEGIN EXCLUSIVE")

    with caplog.at_level(logging.WARNING):
        summary = run_in(tmp_path / "a", "tracking.timeout=0.1", progress=Lock())
    held[0].close()
    messages = [record.getMessage() for record in caplog.records if record.name == "flows.run.tracker"]
    assert summary.rounds == 3 and len(messages) == 2 and "database is locked" in messages[0], messages
    again = run_in(tmp_path / "a")
    assert [step for step, _ in points(tmp_path / "a", "round", again.mlflow_run_id)] == [1, 2, 3]


def test_writing_into_a_run_needs_its_lock_and_reading_does_not(copy, tmp_path, monkeypatch):
    from flows.papers.fidelity.formulas import printed_average
    from flows.stages import write_report

    folder, summary = copy
    root = folder / "r"
    monkeypatch.setenv("FEDSCENE_RUNS", str(folder))
    monkeypatch.setattr(
        "tasks.evaluation.evaluate.evaluate_shared",
        lambda *_: {"clients": [], "logits": None, "metrics": {"macro_ap": 0.1}},
    )
    with locked_run(root):
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        assert printed_average(root, summary.records).printed == {"macro_ap": 0.1}
        assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
        with pytest.raises(UserError, match=r"another process[\s\S]*--out"):
            write_report(root, root / "report")
        monkeypatch.setattr("tasks.report.sample_predictions.report_with_predictions", lambda *_: None)
        write_report(root, tmp_path / "elsewhere")
