"""Problems that users of MLflow reported; each test names the issue."""

import math
import shutil

import numpy as np
import pytest

from models.errors import UserError
from tasks.tracking import mlflow_runs
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.uri import resolve_uri
from tests.support.fabricated import fabricated_run

SETTINGS = TrackingSettings(keep_rounds=2)
TAGS = {"fedscene.run_id": "fmman-seed1", "fedscene.data_version": "abc123"}
pytestmark = pytest.mark.integration


@pytest.fixture
def runs(tmp_path, migrated):
    shutil.copy(migrated, tmp_path / "mlflow.db")
    return tmp_path


def client(runs):
    from mlflow.tracking import MlflowClient

    return MlflowClient(resolve_uri(SETTINGS, runs))


def steps(runs, run_id):
    return [point.step for point in client(runs).get_metric_history(run_id, "macro_ap")]


def test_mlflow_6445_an_experiment_that_was_deleted_in_the_ui_is_named_with_the_way_back(runs):
    fabricated_run(runs / "r", 2)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    experiment = client(runs).get_run(run_id).info.experiment_id
    client(runs).delete_experiment(experiment)
    with pytest.raises(UserError) as caught:
        mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    assert "deleted" in str(caught.value) and "restore" in str(caught.value)
    client(runs).restore_experiment(experiment)
    again = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    mlflow_runs.log_missing(SETTINGS, runs, again, runs / "r")
    assert steps(runs, again) == [1, 2]


def test_mlflow_6606_a_run_that_was_deleted_in_the_ui_is_logged_anew(runs):
    fabricated_run(runs / "r", 2)
    first = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    mlflow_runs.log_missing(SETTINGS, runs, first, runs / "r")
    client(runs).delete_run(first)
    second = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    assert second != first
    mlflow_runs.log_missing(SETTINGS, runs, second, runs / "r")
    assert steps(runs, second) == [1, 2]


def test_a_run_deleted_during_training_is_a_user_error(runs):
    records = fabricated_run(runs / "r", 2)
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    client(runs).delete_run(run_id)
    with pytest.raises(UserError):
        mlflow_runs.log_round(SETTINGS, runs, run_id, records[0], runs / "r" / "rounds" / "0001")


def test_mlflow_26108_a_round_with_metrics_that_are_no_number_still_gets_its_models(runs):
    """A network is logged at the step of a round whose AP of a class without positives is NaN."""
    records = fabricated_run(runs / "r", 1)
    records[0].metrics["macro_ap"] = math.nan
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {}, TAGS)
    mlflow_runs.log_round(SETTINGS, runs, run_id, records[0], runs / "r" / "rounds" / "0001")

    def make():
        import torch

        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2), torch.nn.Sigmoid()).eval()
        return network, np.zeros((2, 3, 2, 2), np.float32), {"labels": ["a", "b"], "input": "x", "output": "y"}

    found = mlflow_runs.finish_run(SETTINGS, runs, run_id, "FINISHED", (), {"last": (1, make)})
    assert set(found) == {"last"}
    assert "fedscene.model_error.last" not in client(runs).get_run(run_id).data.tags


def test_mlflow_6358_a_value_longer_than_mlflow_takes_is_cut_and_named(runs):
    names = [f"label {number} of a very long list" for number in range(1000)]
    run_id = mlflow_runs.open_run(SETTINGS, runs, "r", {"ingest.classes": names, "train.lr": 0.1}, TAGS)
    data = client(runs).get_run(run_id).data
    assert len(data.params["ingest.classes"]) == 6000 and data.params["train.lr"] == "0.1"
    assert "ingest.classes" in data.tags["fedscene.cut_params"]
