"""Whole runs of the tiny preset: the same weights whatever the execution, after a kill, in any process.

Runs that need no process of their own are called in this one, which saves what it costs to import torch and MLflow.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tests.support.projects import QUICK, command, environment

pytestmark = pytest.mark.integration
SETS = [part for text in (*QUICK, "federation.rounds=3") for part in ("--set", text)]


def arguments(*more: str) -> list[str]:
    return ["fedscene", "run", "--preset", "tiny", *SETS, *more, "--json"]


def run(root, *more: str) -> dict:
    root.mkdir(exist_ok=True)
    return json.loads(command(root, *arguments(*more)).stdout)


@pytest.fixture
def run_here(monkeypatch):
    """``run_here(root, ...)``: the same command in this process."""

    def call(root, *more):
        root.mkdir(exist_ok=True)
        monkeypatch.chdir(root)
        monkeypatch.setenv("FEDSCENE_RUNS", str(root / "runs"))
        done = CliRunner().invoke(app, arguments(*more)[1:])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return call


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """One undisturbed run."""
    root = tmp_path_factory.mktemp("reference")
    return run(root), root


def test_a_run_leaves_what_it_says(reference):
    summary, root = reference
    folder = root / "runs" / summary["run_id"]
    assert summary["rounds"] == 3 and summary["mlflow_run_id"]
    assert sorted(path.name for path in (folder / "rounds").iterdir()) == ["0001", "0002", "0003"]
    record = json.loads((folder / "rounds/0003/round.json").read_text())
    assert record["state"]["models"]["global"]["digest"] == summary["digest"]
    assert record["metrics"]["macro_ap"] == pytest.approx(summary["metrics"]["macro_ap"])
    clusters = [name for name in record["state"]["models"] if name.startswith("cluster/")]
    assert clusters and set(record["state"]["cluster_of"].values()) == set(range(len(clusters)))
    assert [stage["name"] for stage in record["stages"]] == [
        "stage 1 local training",
        "stage 2 cluster models",
        *[f"stage 2 average cluster {cluster}" for cluster in range(len(clusters))],
        "stage 3 refine with prototypes",
        "stage 4 loss-weighted average",
    ]
    report = (folder / "report/report.md").read_text()
    assert summary["run_id"] in report and (folder / "report/plots/learning-curve.png").stat().st_size > 10_000
    assert not (folder / "updates").exists()


def test_a_second_call_does_nothing_again_and_gives_the_same(reference, run_here):
    summary, root = reference
    times = {path: path.stat().st_mtime_ns for path in (root / "runs" / summary["run_id"] / "rounds").rglob("*")}
    again = run_here(root)
    assert (again["digest"], again["mlflow_run_id"]) == (summary["digest"], summary["mlflow_run_id"])
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_one_worker_and_chunks_of_three_do_not_change_the_weights(reference, run_here, tmp_path):
    summary, _ = reference
    other = run_here(tmp_path / "other", "--set", "federation.workers=1", "--set", "federation.clients_per_task=3")
    assert other["digest"] == summary["digest"]
    assert other["metrics"] == summary["metrics"]


def test_prefect_does_not_change_the_weights(reference, tmp_path):
    summary, _ = reference
    other = run(tmp_path / "other", "--set", "federation.engine=prefect", "--set", "federation.workers=2")
    assert other["digest"] == summary["digest"]
    assert other["metrics"] == summary["metrics"]


def test_killed_in_round_two_and_started_again_it_ends_the_same(reference, tmp_path):
    summary, _ = reference
    root = tmp_path / "killed"
    root.mkdir()
    process = subprocess.Popen(
        arguments(), cwd=root, env=environment(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    folder = root / "runs" / summary["run_id"]
    deadline = time.monotonic() + 200
    # Round 1 is in place and a client of round 2 has finished.
    while not ((folder / "rounds/0001/round.json").exists() and list(folder.glob("updates/*.json"))):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "rounds/0003").exists()
    again = run(root)
    assert again["digest"] == summary["digest"]
    assert _points(root, again["mlflow_run_id"]) == [1, 2, 3]


def test_ctrl_c_ends_soon_and_keeps_what_is_finished(tmp_path):
    more = ["--set", "train.epochs=2000", "--set", "tracking.enabled=false"]
    process = subprocess.Popen(
        arguments(*more), cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/initial.safetensors")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)  # training has begun
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted; finished work is kept" in said and b"Traceback" not in said


def _points(root, run_id: str) -> list[int]:
    """Steps of a metric in MLflow: each round once."""
    code = (
        "from mlflow import MlflowClient; import sys;"
        "print([m.step for m in MlflowClient(sys.argv[1]).get_metric_history(sys.argv[2], 'macro_ap')])"
    )
    uri = f"sqlite:///{root / 'runs' / 'mlflow.db'}"
    return json.loads(command(root, sys.executable, "-c", code, uri, run_id).stdout)


def test_fedavg_and_a_plain_resnet_by_set_alone(run_here, tmp_path):
    plain = run_here(tmp_path / "plain", "--set", "method.name=fedavg", "--set", "model.name=resnet18")
    assert plain["rounds"] == 3 and plain["run_id"].startswith("fedavg-resnet18-")
