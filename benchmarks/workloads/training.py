"""What the training workloads share: FedAvg on generated images, by us, by hand, by Flower and by pfl."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.harness.figures import NOT_MEASURED, per_round
from benchmarks.training.images import write_images
from benchmarks.workloads import Options
from benchmarks.workloads.fedscene_runs import ROOT, Settings, our_run, overrides, python

FIGURES = {"cpu_s": "CPU-s a round", "wall_s": "wall s a round", "loss": "loss"}
RATIOS = ("cpu_s", "wall_s")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
Collect = Callable[[Run, Path], Metrics]


def settings_of(images: Path, side: int, kind: str) -> dict[str, object]:
    """Return the settings of all training workloads: given split, a client for each site, FedAvg, nothing beside."""
    return {
        "ingest.source": "table",
        "ingest.path": images,
        "ingest.image_size": side,
        "ingest.kind": kind,
        "ingest.table.split": "split",
        "ingest.split.scheme": "given",
        "ingest.split.val": 0,
        "ingest.site.rule": "column",
        "ingest.site.column": "site",
        "partition.scheme": "natural",
        "partition.min_size": 1,
        "method.name": "fedavg",
        "train.epochs": 1,
        "train.optimizer": "sgd",
        "train.grad_clip": "null",
        "evaluation.every": 1000,
        "tracking.enabled": "false",
        "report.images": 1,
    }


def make_job(
    name: str,
    options: Options,
    sizes: Sequence[int],
    side: int,
    classes: int,
    several_labels: bool,
    settings: Settings,
    rounds: int,
) -> tuple[dict[str, object], Path]:
    """Make images, data set and the job of the other contestants.

    Args:
        name: The workload.
        options: Options.
        sizes: Training images of each client.
        side: Side of the images, pixels.
        classes: Number of labels.
        several_labels: Whether images have several labels.
        settings: The workload's own settings.
        rounds: Rounds that are run.

    Returns:
        The settings of ``fedscene run``, and the folder of the job.
    """
    work = options.work / (f"{name}-quick" if options.quick else name)
    work.mkdir(parents=True, exist_ok=True)
    images = work / f"images-{len(sizes)}-{sum(sizes)}-{side}"
    options.say(f"  {sum(sizes)} images of {len(sizes)} clients")
    write_images(images, sizes, side, classes, test=100, several_labels=several_labels)
    kind = "multi_label" if several_labels else "single_label"
    ours = settings_of(images, side, kind) | dict(settings)
    job = work / "job"
    shutil.rmtree(job, ignore_errors=True)
    python(work, "-m", "benchmarks.training.export", job, *overrides(ours | {"federation.rounds": rounds}))
    return ours, job


def ours(settings: Settings, work: Path, rounds: int, engine: str, workers: int) -> Contestant:
    """Return ``fedscene run`` with an engine and a number of workers."""
    where = {"federation.engine": engine, "federation.workers": workers}
    name = f"ours-{workers}" if engine == "local" else f"ours-{engine}-{workers}"
    title = f"FedScene, engine {engine}, {workers} worker{'s' if workers > 1 else ''}"
    return our_run(name, title, dict(settings) | where, work, rounds)


def others(job: Path, options: Options, collect: Collect, only: Sequence[str] = ()) -> list[Contestant]:
    """Return the loops written by hand and the other frameworks.

    Args:
        job: Folder of the job.
        options: Options.
        collect: Turns a run into figures.
        only: Names of those that are wanted; default: all.
    """
    variables = QUIET | {"PYTHONPATH": str(ROOT), "FLWR_HOME": str(job / "flwr"), "FEDSCENE_FIRST_BATCH": "first-batch"}
    here, peers = Path(sys.executable), options.peers

    def made(name: str, title: str, python: Path, module: str, *arguments: object, fault: str = "") -> Contestant:
        command = [str(python), "-m", f"benchmarks.training.{module}", str(job), *map(str, arguments)]
        return Contestant(name, title, lambda _: command, collect, variables, first_batch, fault=fault)

    pfl, flower = peers.faults.get("pfl", ""), peers.faults.get("flower", "")
    found = [
        made("hand-1", "hand-written loop", here, "hand_loop"),
        made("hand-2", "hand-written loop, 2 processes", here, "hand_loop_two"),
        made("pfl-1", "pfl", peers.python, "pfl_run", 1, fault=pfl),
        made("pfl-2", "pfl, 2 processes", peers.python, "pfl_run", 2, fault=pfl),
        made("flower-1", "Flower, 1 actor", peers.python, "flower_run", 1, fault=flower),
        made("flower-2", "Flower, 2 actors", peers.python, "flower_run", 2, fault=flower),
    ]
    return [each for each in found if not only or each.name in only]


def first_batch(folder: Path) -> Path:
    """Return the file that a loop or a framework creates after its first batch."""
    return folder / "first-batch"


def rounds_and_loss(rounds: int) -> Collect:
    """Return what collects ``per_round`` and the loss."""
    return lambda run, folder: per_round(run, rounds) | {"loss": run.result["loss"]}


def parameters(job: Path) -> int:
    """Return the number of values in the network's state."""
    return int(json.loads((job / "job.json").read_text())["parameters"])


def rounds_of(measured: int) -> int:
    """Return the rounds that are run so that ``measured`` of them count."""
    return measured + NOT_MEASURED
