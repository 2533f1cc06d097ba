"""MLflow's SQLite file: a kill or a full disk during its creation leaves nothing that blocks the next run."""

import logging
import shutil
import sqlite3
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.errors import UserError
from tasks.tracking import mlflow_runs
from tasks.tracking.availability import check_available
from tasks.tracking.mlflow_client import make_client
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.uri import resolve_uri

TAGS = {"fedscene.run_id": "r"}
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def existing(migrated, tmp_path_factory):
    """A folder with a complete database that has a run of the default experiment."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copy(migrated, folder)
    mlflow_runs.open_run(TrackingSettings(), folder, "r", {}, TAGS)
    return folder


def open_in(folder):
    return mlflow_runs.open_run(TrackingSettings(), folder, "r", {}, TAGS)


def runs_in(folder):
    with sqlite3.connect(folder / "mlflow.db") as database:
        return database.execute("SELECT count(*) FROM runs").fetchone()[0]


def test_the_database_is_created_beside_its_final_name(migrated, tmp_path, monkeypatch):
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    seen = []

    def end(self, uri, root, *_):
        seen.append(uri)
        sqlite3.connect(uri.removeprefix("sqlite:///")).execute("CREATE TABLE experiments (x)").connection.close()
        raise OSError("No space left on device")

    monkeypatch.setattr(SqlAlchemyStore, "__init__", end)
    with pytest.raises(UserError, match=r"No space left[\s\S]*free space on the disk"):
        open_in(tmp_path)
    assert f"{tmp_path}/mlflow.db" not in seen[0]
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    assert sorted(path.name for path in migrated.parent.iterdir()) == ["mlflow.db", "mlflow.db.lock"]


@pytest.mark.parametrize(
    "left", ["no revision", "earlier revision", "temporary table", "empty", "no tables", "working folder"]
)
def test_an_incomplete_database_is_recognised_and_set_aside(existing, tmp_path, monkeypatch, caplog, left):
    # Creating a database takes seconds: this one is copied instead
    complete = existing / "whole.db"
    monkeypatch.setattr("tasks.tracking.database.create_tables", lambda file, _: shutil.copy(complete, file))
    shutil.copy(existing / "mlflow.db", complete)
    clear(complete)
    file = tmp_path / "mlflow.db"
    if left == "empty":
        file.touch()
    elif left == "working folder":
        (tmp_path / ".mlflow.db.making-abc").mkdir()
        (tmp_path / ".mlflow.db.making-abc" / "mlflow.db").write_bytes(b"half")
    elif left == "no tables":
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE x (y)")
            database.execute("DROP TABLE x")
    else:
        shutil.copy(complete, file)
        statement = {
            "no revision": "DELETE FROM alembic_version",
            "earlier revision": "UPDATE alembic_version SET version_num = '451aebb31d03'",
            "temporary table": "CREATE TABLE _alembic_tmp_datasets (x)",
        }[left]
        with sqlite3.connect(file) as database:
            database.execute(statement)
    before = file.read_bytes() if file.exists() else b""
    with caplog.at_level(logging.WARNING):
        assert open_in(tmp_path)
    assert runs_in(tmp_path) == 1
    aside = list(tmp_path.glob("mlflow.db.incomplete-*"))
    assert [path.read_bytes() for path in aside] == ([before] if before else [])
    assert ("left incomplete" in caplog.text) == bool(before)
    assert not list(tmp_path.glob(".mlflow.db.making-*"))


def clear(file):
    """Delete the runs and the experiments from a database."""
    with sqlite3.connect(file) as database:
        for table in ("tags", "runs", "experiment_tags"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - fixed names
        database.execute("DELETE FROM experiments WHERE experiment_id != 0")


@pytest.mark.parametrize("damage", ["CREATE TABLE _alembic_tmp_datasets (x)", "DELETE FROM alembic_version"])
def test_a_database_that_holds_runs_is_never_set_aside(existing, tmp_path, damage):
    shutil.copy(existing / "mlflow.db", tmp_path / "mlflow.db")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute(damage)
    if damage.startswith("CREATE"):
        assert open_in(tmp_path)
    else:
        with pytest.raises(UserError, match="out-of-date database schema"):
            open_in(tmp_path)
    assert runs_in(tmp_path) == 2 and not list(tmp_path.glob("*incomplete*"))


def test_writing_follows_a_replaced_database_file(existing, tmp_path):
    shutil.copy(existing / "mlflow.db", tmp_path / "mlflow.db")
    first = open_in(tmp_path)
    shutil.copy(existing / "mlflow.db", tmp_path / "other.db")
    clear(tmp_path / "other.db")
    (tmp_path / "other.db").replace(tmp_path / "mlflow.db")
    assert open_in(tmp_path) != first and runs_in(tmp_path) == 1


def test_an_error_of_the_database_is_one_line_not_pages_of_sql(existing, tmp_path):
    shutil.copy(existing / "mlflow.db", tmp_path / "mlflow.db")
    run_id = open_in(tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("DROP TABLE tags")
    with pytest.raises(UserError, match="no such table") as caught:
        mlflow_runs.finish_run(TrackingSettings(), tmp_path, run_id, "FINISHED")
    assert "SELECT" not in str(caught.value) and len(str(caught.value)) < 700
    assert resolve_uri(TrackingSettings(), tmp_path) in str(caught.value)


def test_two_concurrent_runs_create_one_database(existing, tmp_path, monkeypatch):
    calls = []

    def slow(file, _):
        calls.append(file)
        time.sleep(0.3)
        shutil.copy(existing / "mlflow.db", file)

    monkeypatch.setattr("tasks.tracking.database.create_tables", slow)
    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(open_in, [tmp_path, tmp_path]))) == 1
    assert len(calls) == 1


def test_a_locked_database_is_refused_within_the_timeout(existing, tmp_path):
    shutil.copy(existing / "mlflow.db", tmp_path / "mlflow.db")
    settings = TrackingSettings(timeout=0.2)
    check_available(settings, tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match="locked"):
            check_available(settings, tmp_path)
        database.execute("ROLLBACK")
    check_available(settings, tmp_path)


def test_artifacts_that_were_moved_with_their_database_are_found_and_new_ones_are_beside_them(
    migrated, tmp_path, caplog, monkeypatch
):
    old, new = tmp_path / "old place", tmp_path / "new"
    old.mkdir()
    shutil.copy(migrated, old)
    (report := tmp_path / "report.md").write_text("first")
    run_id = open_in(old)
    mlflow_runs.finish_run(TrackingSettings(), old, run_id, "FINISHED", [report])
    old.rename(new)
    # Another process, which has not opened the old place
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._artifact_repos_cache", OrderedDict())
    assert open_in(new) == run_id
    assert "are now beside their database" in caplog.text
    client = make_client(resolve_uri(TrackingSettings(), new))
    assert Path(client.download_artifacts(run_id, "report/report.md")).read_text() == "first"
    report.write_text("second")
    mlflow_runs.finish_run(TrackingSettings(), new, run_id, "FINISHED", [report])
    assert [file.read_text() for file in (new / "mlartifacts").rglob("report.md")] == ["second"]
    assert not old.exists()
    caplog.clear()
    assert open_in(new) == run_id and "beside" not in caplog.text


@pytest.mark.parametrize("location", ["s3://bucket/mlartifacts", "file:///another/disk/mlartifacts"])
def test_artifacts_elsewhere_stay_there(migrated, tmp_path, location):
    shutil.copy(migrated, tmp_path)
    uri = resolve_uri(TrackingSettings(), tmp_path)
    elsewhere = make_client(uri).create_experiment("elsewhere", location)
    (tmp_path / "mlartifacts").mkdir()
    open_in(tmp_path)
    assert make_client(uri).get_experiment(elsewhere).artifact_location == location
