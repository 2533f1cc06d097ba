"""The pipeline under DVC and as a Prefect deployment, in a temporary project."""

import hashlib
import json
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.projects import command, environment, git, make_project

pytestmark = pytest.mark.integration
STAGES = ("ingest", "partition", "federate", "report")


def stages_run(output: str) -> list[str]:
    """Return the stages that DVC ran."""
    return [stage for stage in STAGES if f"Running stage '{stage}'" in output]


def repro(root) -> list[str]:
    return stages_run(command(root, "dvc", "repro").stdout)


def modified_cache_files(root) -> list[str]:
    """Return the files of DVC's cache whose content does not match their name."""
    files = [path for path in (root / ".dvc/cache/files/md5").rglob("*") if path.is_file()]
    assert files
    sums = {path: hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() for path in files}
    return [str(path) for path, found in sums.items() if path.parent.name + path.name.removesuffix(".dir") != found]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = make_project(tmp_path_factory.mktemp("dvc") / "project")
    command(root, "dvc", "config", "cache.type", "hardlink,symlink")  # as docs/data-versions.md recommends
    return root


def test_the_pipeline_leaves_nothing_for_dvc_to_do(project):
    proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": ""}  # must not be used for local servers
    summary = json.loads(command(project, "fedscene", "pipeline", "--json", **proxy).stdout)
    assert summary["rounds"] == 2
    assert repro(project) == []
    shown = json.loads(command(project, "dvc", "metrics", "show", "--json").stdout)[""]["data"]
    assert shown["data/federation/metrics.json"]["data"]["macro_ap"] == summary["metrics"]["macro_ap"]
    assert shown["data/ingest.json"]["data"]["images"] == 120
    git(project, "add", "-A")
    git(project, "commit", "-qm", "a run")


def test_a_changed_learning_rate_runs_federate_and_report_only(project):
    params = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(params.replace("lr: 0.002", "lr: 0.003"))
    assert repro(project) == ["federate", "report"]
    assert repro(project) == []
    changed = json.loads(command(project, "dvc", "params", "diff", "--json").stdout)
    assert list(changed) == ["params.yaml"] and list(changed["params.yaml"]) == ["train.lr"]
    assert changed["params.yaml"]["train.lr"]["new"] == 0.003


def test_changed_tracking_and_execution_settings_run_no_stage(project):
    params = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(
        params.replace("keep_rounds: 5", "keep_rounds: 4").replace("workers: 2", "workers: 1")
    )
    assert repro(project) == []


def test_an_experiment_changes_the_method(project):
    command(project, "dvc", "exp", "run", "-S", "method.name=fedavg", "-n", "averaged")
    model = json.loads((project / "data/federation/model/model.json").read_text())
    assert model["run_id"].startswith("fedavg-")
    assert "averaged" in command(project, "dvc", "exp", "show", "--csv").stdout


@pytest.fixture
def server(project):
    """A Prefect server with the project's deployments and a worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api = {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    log = (project.parent / "prefect.log").open("w")
    start = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    processes = [subprocess.Popen(start, cwd=project, env=environment(project, **api), stdout=log, stderr=log)]
    try:
        _wait_for(api["PREFECT_API_URL"] + "/health")
        command(project, "prefect", "work-pool", "create", "fedscene", "--type", "process", **api)
        command(project, "prefect", "--no-prompt", "deploy", "--all", **api)
        quick = environment(project, PREFECT_WORKER_QUERY_SECONDS="1", **api)
        worker = ["prefect", "worker", "start", "--pool", "fedscene"]
        processes.append(subprocess.Popen(worker, cwd=project, env=quick, stdout=log, stderr=log))
        yield api
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(5)  # the server waits for its clients' connections, which are gone
            except subprocess.TimeoutExpired:
                process.kill()
        log.close()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urlopen(url, timeout=2).close()  # noqa: S310 - our own server
        except (URLError, OSError):
            assert time.monotonic() < deadline, "the Prefect server did not start"
            time.sleep(0.5)
        else:
            return


def test_a_deployment_runs_on_a_worker_and_its_tasks_are_named_by_stage(project, server):
    params = (project / "params.yaml").read_text()
    for old, new in (
        ("engine: local", "engine: prefect"),
        ("name: fedavg", "name: fmman"),
        ("lr: 0.003", "lr: 0.004"),
    ):
        assert old in params
        params = params.replace(old, new)
    (project / "params.yaml").write_text(params)
    ran = command(
        project, "prefect", "deployment", "run", "pipeline/nightly", "--watch", "--watch-interval", "1", **server
    )
    assert "Completed" in ran.stdout + ran.stderr
    script = (
        "import json\n"
        "from prefect.client.orchestration import get_client\n"
        "with get_client(sync_client=True) as client:\n"
        "    flows = client.read_flow_runs()\n"
        "    tasks = client.read_task_runs(limit=200)\n"
        "    deployments = client.read_deployments()\n"
        "print(json.dumps({'flows': [[r.name, r.state.type.value] for r in flows],"
        " 'tasks': [[t.name, t.state.type.value] for t in tasks],"
        " 'deployments': {d.name: [str(s.schedule) for s in d.schedules] for d in deployments}}))\n"
    )
    seen = json.loads(command(project, sys.executable, "-c", script, **server).stdout.splitlines()[-1])
    assert {state for _, state in seen["flows"]} <= {"COMPLETED", "SCHEDULED"}
    assert any("0 2 * * *" in text and "Europe/Berlin" in text for text in seen["deployments"]["nightly"])
    names = [name for name, state in seen["tasks"] if state == "COMPLETED"]
    for stage in (
        "stage 1 local training",
        "stage 2 cluster models",
        "stage 2 average cluster 0",
        "stage 3 refine with prototypes",
        "stage 4 loss-weighted average",
        "evaluate",
        "track",
    ):
        assert any(f"round 2: {stage}" in name for name in names), (stage, names)
    assert repro(project) == []
    assert (project / "data/report/report.md").stat().st_nlink > 1  # a link, and yet nothing was written through one
    assert modified_cache_files(project) == []


def test_a_stage_that_fails_ends_the_pipeline_with_its_reason(project):
    before = {name: (project / name).read_bytes() for name in ("params.yaml", "dvc.lock", "data/dataset/dataset.json")}
    sets = ["--set", "ingest.source=voc", "--set", "ingest.path=no/such/folder"]
    done = command(project, "fedscene", "pipeline", *sets, "--json", check=False)
    assert done.returncode == 2 and "ingest" in json.loads(done.stdout)["error"]["what"]
    assert "no/such/folder" in done.stderr and "Traceback" not in done.stderr
    assert "partition" not in done.stderr
    assert done.stderr.count("no such folder") <= 1 and done.stderr.count("error: ") == 1
    assert "rolled back: params.yaml" in done.stderr
    assert before == {name: (project / name).read_bytes() for name in before}
