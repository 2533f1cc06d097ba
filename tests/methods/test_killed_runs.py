"""kill -9 in round 2 of 3: the resumed run ends with the personal models of an undisturbed one, digest by digest."""

import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from flows.cli.main import app
from tasks.client.worker_processes import PRELOADED
from tasks.core.finished_rounds import finished_rounds
from tasks.core.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.integration]

ROUNDS = 3
SETS = (
    "ingest.synthetic.images=48", "ingest.synthetic.sites=2", "ingest.image_size=32", "partition.scheme=iid",
    "partition.clients=3", "partition.min_size=2", "model.name=resnet18", "model.backbone.width=0.125",
    "objective.name=bce", "train.epochs=1", "train.batch_size=8", "report.images=0", "federation.workers=1",
    "tracking.enabled=false", "evaluation.every=3", f"federation.rounds={ROUNDS}",
)  # fmt: skip
METHODS = {
    "fedper": (),
    "fedrep": (),
    "fedbn": (),
    "ditto": ("method.ditto.lam=1",),
    "fedala": ("method.fedala.max_passes=3",),
    "feddyn": ("method.feddyn.alpha=0.5",),
    "fedscrap": (),
    "fedamp": (),
    "local": (),
    "fedavg_finetune": ("method.fedavg_finetune.epochs=1",),
    "ifca": ("method.ifca.clusters=2",),
    "cpfl": (),
    "icfl": ("method.icfl.theta_join=1", "method.icfl.theta_split=0.99", "method.icfl.theta_merge=1"),
    "cfl": ("method.cfl.warmup=1", "method.cfl.eps1=1e9", "method.cfl.eps2=0"),
}


def arguments(method):
    sets = [f"--set={text}" for text in (*SETS, f"method.name={method}", *METHODS[method])]
    return ["run", "--preset", "tiny", "--run-id", method, *sets]


def fedscene(folder, arguments):
    """The command, in a process of its own."""
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("FEDSCENE_")]:
        del os.environ[name]
    with Path("output.txt").open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        app(arguments)


def started(folder, method):
    """Start the run in a process that begins with all modules loaded: loading them takes longer than three rounds."""
    context = get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, "flows.cli.main", "flows.federate"])
    process = context.Process(target=fedscene, args=(folder, arguments(method)))
    process.start()
    return process


def state_of(folder, method):
    """What the last round hands on, by digest: the models, what clients keep, and whose model is whose."""
    state = finished_rounds(Store(folder / "runs" / method), ROUNDS)[-1].state
    parts = (state.models, state.private, state.personal, state.server)
    return [{name: ref.digest for name, ref in part.items()} for part in parts], state.own


def trained_after_round_one(root):
    """Whether a client has finished a training since round 1 was saved."""
    saved = root / "rounds" / "0001" / "round.json"
    try:
        return any(path.stat().st_mtime_ns > saved.stat().st_mtime_ns for path in (root / "updates").glob("*.json"))
    except FileNotFoundError:  # nothing is saved yet, or the round is being tidied up
        return False


def killed_in_round_two(folder, method):
    """Start the run and kill it by SIGKILL once a client of round 2 has finished; return whether it was so."""
    root = folder / "runs" / method
    process = started(folder, method)
    deadline = time.monotonic() + 120
    while process.is_alive() and time.monotonic() < deadline:
        if trained_after_round_one(root):
            break
        time.sleep(0.002)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL and not (root / "rounds" / "0002").exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_ends_with_the_same_personal_models(method, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert killed_in_round_two(broken, method), "the run must still have been in round 2"
    for folder in (whole, broken):
        process = started(folder, method)
        process.join()
        assert process.exitcode == 0, (folder / "output.txt").read_text()[-2000:]
    assert state_of(broken, method) == state_of(whole, method)
    kept, own = state_of(whole, method)
    personal = sum(name.startswith("client/") for name in kept[0])
    clustered = sum(name.startswith("cluster/") for name in own.values())
    assert 3 in (len(kept[1]), personal, clustered)
