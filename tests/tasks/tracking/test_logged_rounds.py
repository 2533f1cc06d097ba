"""Rounds in MLflow: each exactly once, whatever was killed or unreachable; finishing twice changes nothing."""

import shutil
import sqlite3

import numpy as np
import pytest

from models.errors import UserError
from tasks.tracking import mlflow_runs
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.tags import best_tags
from tasks.tracking.uri import resolve_uri
from tests.support.fabricated import fabricated_record, fabricated_run

SETTINGS = TrackingSettings(keep_rounds=2)
TAGS = {"fedscene.run_id": "r", "fedscene.data_version": "abc123"}
pytestmark = pytest.mark.integration


@pytest.fixture
def runs(tmp_path, migrated):
    shutil.copy(migrated, tmp_path / "mlflow.db")
    return tmp_path


def make_client(runs):
    from mlflow.tracking import MlflowClient

    return MlflowClient(resolve_uri(SETTINGS, runs))


def steps(runs, run_id, key="macro_ap"):
    return [point.step for point in make_client(runs).get_metric_history(run_id, key)]


def log(runs, run_id, record):
    return mlflow_runs.log_round(SETTINGS, runs, run_id, record, runs / "r" / "rounds" / f"{record.round:04d}")


def weights(runs, run_id):
    root = runs / "mlartifacts" / run_id / "artifacts" / "rounds"
    return sorted(path.parent.name for path in root.glob("*/model.safetensors"))


def test_a_missing_round_is_logged_later_and_once(runs):
    records = fabricated_run(runs / "r", 4)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    assert log(runs, run_id, records[2]) and log(runs, run_id, records[1])
    assert mlflow_runs.log_missing(SETTINGS, runs, run_id, runs / "r") == [1, 4]
    assert mlflow_runs.log_missing(SETTINGS, runs, run_id, runs / "r") == []
    assert sorted(steps(runs, run_id)) == sorted(steps(runs, run_id, "round")) == [1, 2, 3, 4]
    tags = make_client(runs).get_run(run_id).data.tags
    assert tags["fedscene.logged_rounds"] == "1-4" and tags["fedscene.last_round"] == "4"
    assert weights(runs, run_id) == sorted({"0003", "0004", f"{int(tags['fedscene.best_round']):04d}"})


def test_rounds_that_an_earlier_release_skipped_are_found_by_mlflows_steps(runs):
    records = fabricated_run(runs / "r", 3)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    log(runs, run_id, records[1])
    make_client(runs).delete_tag(
        run_id, "fedscene.logged_rounds"
    )  # as 5cfad71 left it: round 2 is the last, 1 is missing
    assert mlflow_runs.log_missing(SETTINGS, runs, run_id, runs / "r") == [1, 3]
    assert sorted(steps(runs, run_id)) == [1, 2, 3]


def test_metrics_of_a_round_evaluated_after_logging_are_added(runs):
    whole = fabricated_run(runs / "r", 2)[1]
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    bare = fabricated_record(2)
    bare.metrics, bare.per_class, bare.per_site = {}, {}, {}
    assert log(runs, run_id, bare) and not log(runs, run_id, bare)
    assert log(runs, run_id, whole) and not log(runs, run_id, whole)
    assert steps(runs, run_id) == steps(runs, run_id, "round") == steps(runs, run_id, "clients/completed") == [2]
    assert make_client(runs).get_run(run_id).data.tags["fedscene.best_round"] == "2"


def test_of_equal_rounds_the_earliest_is_the_best_in_any_order():
    first, second = fabricated_record(1), fabricated_record(2)
    first.metrics["macro_ap"] = second.metrics["macro_ap"] = 0.5
    tags = best_tags({}, second)
    assert (tags | best_tags(tags, first))["fedscene.best_round"] == "1"
    tags = best_tags({}, first)
    assert (tags | best_tags(tags, second))["fedscene.best_round"] == "1"


def test_fewer_rounds_than_are_logged_become_a_separate_mlflow_run(runs):
    fabricated_run(runs / "r", 3)
    whole = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS, 3)
    mlflow_runs.log_missing(SETTINGS, runs, whole, runs / "r", 3)
    fewer = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS, 2)
    assert fewer != whole and mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS, 2) == fewer
    mlflow_runs.log_missing(SETTINGS, runs, fewer, runs / "r", 2)
    assert mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS, 2) == fewer
    assert mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS, 3) == whole
    assert (steps(runs, whole), steps(runs, fewer)) == ([1, 2, 3], [1, 2])


def everything(runs):
    with sqlite3.connect(runs / "mlflow.db") as database:
        return list(database.iterdump())


def test_finishing_again_changes_nothing_and_an_incomplete_model_is_replaced(runs):
    import torch

    class Tiny(torch.nn.Module):
        def forward(self, images):
            return torch.sigmoid(images.float().mean((2, 3)))

    fabricated_run(runs / "r", 1)
    (runs / "report").mkdir()
    (runs / "report" / "report.md").write_text("# done")
    example = np.zeros((2, 3, 8, 8), dtype=np.float32)

    def finish():
        run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {"a": 1}, TAGS | {"commit": "of today"}, 1, True)
        mlflow_runs.log_missing(SETTINGS, runs, run_id, runs / "r", 1)
        models = {"best": (1, lambda: (Tiny(), example, {})), "last": (1, lambda: (Tiny(), example, {}))}
        return run_id, mlflow_runs.finish_run(SETTINGS, runs, run_id, "FINISHED", [runs / "report"], models)

    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {"a": 1}, TAGS)
    experiment = make_client(runs).get_run(run_id).info.experiment_id
    make_client(runs).create_logged_model(experiment, name="best", source_run_id=run_id, tags={"round": "1"})  # killed
    first = finish()
    (model,) = make_client(runs).search_logged_models([experiment])
    assert first[1] == {"best": model.model_uri, "last": model.model_uri} and model.status == "READY"
    before = everything(runs)
    assert finish() == first and everything(runs) == before
    (runs / "report" / "report.md").write_text("# other")
    finish()
    assert (runs / "mlartifacts" / run_id / "artifacts/report/report.md").read_text() == "# other"


def test_a_network_that_cannot_be_exported_leaves_no_model_and_is_not_tried_each_time(runs):
    import torch

    class Branches(torch.nn.Module):
        def forward(self, images):
            return images if float(images.float().sum()) > 1 else -images

    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    example = np.zeros((2, 3, 8, 8), dtype=np.float32)
    models = {"last": (1, lambda: (Branches(), example, {}))}
    assert mlflow_runs.finish_run(SETTINGS, runs, run_id, "FINISHED", (), models) == {}
    again = {"last": (1, lambda: pytest.fail("tried again"))}
    assert mlflow_runs.finish_run(SETTINGS, runs, run_id, "FINISHED", (), again) == {}
    run = make_client(runs).get_run(run_id)
    assert run.data.tags["fedscene.model_error.last"].startswith("round 1: ")
    assert list(make_client(runs).search_logged_models([run.info.experiment_id])) == []


def test_a_deleted_database_is_reported_in_a_few_lines(runs):
    records = fabricated_run(runs / "r", 1)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    (runs / "mlflow.db").unlink()
    with pytest.raises(UserError, match="is missing") as caught:
        log(runs, run_id, records[0])
    assert len(str(caught.value)) < 800 and not (runs / "mlflow.db").exists()
