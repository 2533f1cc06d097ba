"""The demo's round against the same local trainings in two processes that do nothing else."""

import shutil
import sys
from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.harness.figures import per_round
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import environment, our_run, overrides, python

SETTINGS = {
    "federation.workers": 2,
    "evaluation.every": 1000,
    "tracking.enabled": "false",
    "report.images": 1,
}
WARM_UP = 1


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        "The demo (FMMAN, six sites, three epochs) with 600 of its 1,800 images, two workers, without evaluation and "
        "tracking. By hand: two processes call the local trainings of the same clients one after the other, and write, "
        "check and aggregate nothing."
    )
    return About("Demo", text, "hand", {"cpu_s": "CPU-s a round", "wall_s": "wall s a round"}, ("cpu_s", "wall_s"))


def prepare(name: str, options: Options) -> Prepared:
    """Train a first round, whose inputs the hand-written loop takes; return the contestants."""
    work = options.work / (f"{name}-quick" if options.quick else name)
    work.mkdir(parents=True, exist_ok=True)
    images, rounds = (480, 3) if options.quick else (600, 4)
    settings = SETTINGS | {"ingest.synthetic.images": images}
    root = work / "runs" / "inputs"
    shutil.rmtree(root, ignore_errors=True)
    options.say("  a first round")
    first = settings | {"federation.rounds": 1, "federation.engine": "local"}
    words = [word for text in overrides(first) for word in ("--set", text)]
    python(work, "-m", "flows.cli.main", "run", "--run-id", root.name, "--preset", "demo", *words)

    def collect(run: Run, folder: Path) -> Metrics:
        del folder
        return per_round(run, rounds, WARM_UP)

    command = [sys.executable, "-m", "benchmarks.training.demo_hand", str(root), str(rounds)]
    found = [Contestant("hand", "local trainings, 2 processes", lambda _: command, collect, environment(work))]
    own = settings | {"federation.engine": "local"}
    title = "FedScene, engine local, 2 workers"
    found.append(our_run("ours-local", title, own, work, rounds, presets=("demo",), collect=collect))
    return Prepared(found, {"clients": 6, "images": images, "rounds": rounds})
