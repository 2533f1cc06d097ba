"""The federated round on a GPU against a plain loop, clients that share a GPU, and FMMAN's cycle.

    python benchmarks/gpu.py                   on a machine with a GPU: ResNet-18, 224 pixels, bf16, 8 clients
    python benchmarks/gpu.py --quick           anywhere: tiny sizes, fp32 on the CPU, to see that everything runs

It is the workload ``gpu`` of ``make bench``, which runs only if it is named; the results go to the same page. So far it
has run on CPUs only, in small.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.harness.figures import per_round
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import ROOT, our_run
from benchmarks.workloads.training import make_job, rounds_of

CLIENTS, LABELS = 8, 16
SHARING = ((2, "threads"), (4, "threads"), (2, "processes"))  # clients on the GPU at once, and where


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        f"{CLIENTS} clients with equally many images, one epoch, SGD. The plain loop trains the clients one after the "
        "other and averages them on the GPU. Peak memory is what `nvidia-smi` shows for the first GPU, above what was "
        "in use before. With two GPUs, two runs at once have one each."
    )
    figures = {"images_s": "images/s", "wall_s": "wall s a round", "cpu_s": "CPU-s a round", "gpu_mb": "GPU memory, MB"}
    return About("GPU", text, "plain-64", figures, ("images_s",))


def device() -> tuple[str, int]:
    """Return the device to use and the number of GPUs."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ("cuda:0", count) if count else ("cpu", 0)


def prepare(name: str, options: Options) -> Prepared:
    """Make the data; return the contestants."""
    where, count = device()
    small = options.quick or where == "cpu"
    images, side, width, measured = (4, 32, 0.125, 1) if small else (512, 224, 1.0, 4)
    precision = "bf16" if where != "cpu" else "fp32"
    rounds = rounds_of(measured)
    common: dict[str, object] = {
        "model.name": "resnet18",
        "model.backbone.width": width,
        "model.backbone.stem": "small" if small else "imagenet",
        "train.lr": 0.05,
        "objective.name": "bce",
        "federation.device": where,
        "federation.precision": precision,
        "federation.engine": "local",
    }
    found: list[Contestant] = []
    for batch in (16, 64):
        own = common | {"train.batch_size": batch}
        settings, job = make_job(f"{name}-{batch}", options, [images] * CLIENTS, side, LABELS, True, own, rounds)
        command = [sys.executable, "-m", "benchmarks.training.hand_loop", str(job), where, precision]
        found.append(_measured(_plain(batch, command), rounds, images))
        found += _federated(batch, settings, job.parent, rounds, images, count)
    fmman = settings | {
        "model.name": "fmman", "method.name": "fmman", "objective.name": "default", "train.batch_size": 16,
        "train.optimizer": "adam", "train.lr": 0.0005,
    }  # fmt: skip
    cycle = our_run("fmman-16", "FMMAN, a cycle, batch 16", fmman, job.parent, rounds)
    found.append(_measured(cycle, rounds, 2 * images))
    facts = {"device": _name(where), "precision": precision, "clients": CLIENTS, "images": images, "side": side}
    return Prepared(found, facts)


def _plain(batch: int, command: Sequence[str]) -> Contestant:
    environment = {"PYTHONPATH": str(ROOT)}
    return Contestant(f"plain-{batch}", f"plain loop, batch {batch}", lambda _: command, lambda run, _: {}, environment)


def _federated(
    batch: int, settings: dict[str, object], work: Path, rounds: int, images: int, gpus: int
) -> list[Contestant]:
    """Return the federated round with one client at a time, with several, and two runs on two GPUs."""

    def one(suffix: str, title: str, more: dict[str, object]) -> Contestant:
        name = f"fed-{batch}{suffix}"
        return our_run(name, f"FedScene, batch {batch}{title}", settings | more, work, rounds)

    found = [_measured(one("", "", {"federation.workers": 1}), rounds, images)]
    for number, kind in SHARING:
        more = {"federation.workers": number, "federation.clients_per_gpu": number, "federation.worker_type": kind}
        found.append(_measured(one(f"-{number}-{kind}", f", {number} clients at once, {kind}", more), rounds, images))
    other = one("-two-gpus", ", beside the same run on the other GPU", {"federation.workers": 1})
    if gpus < 2:
        return [*found, replace(other, fault=f"needs two GPUs, found {gpus}")]
    second = one("-second", "", {"federation.workers": 1, "federation.device": "cuda:1"})
    return [*found, _measured(_beside(other, second), rounds, images)]


def _beside(first: Contestant, second: Contestant) -> Contestant:
    """Return the first contestant, whose command also runs the second one's, in the background and unmeasured."""

    def command(folder: Path) -> list[str]:
        below = folder / "second"
        below.mkdir()
        line = 'second=$1; shift; sh -c "$second" >/dev/null 2>&1 & "$@"; status=$?; wait; exit $status'
        quoted = " ".join(f"'{part}'" for part in second.command(below))
        return ["sh", "-c", line, "beside", quoted, *first.command(folder)]

    return replace(first, command=command)


def _measured(contestant: Contestant, rounds: int, images: int) -> Contestant:
    """Return the contestant with images per second and the peak of the GPU's memory."""
    memory: list[GpuMemory] = []

    def command(folder: Path) -> Sequence[str]:
        memory[:] = [GpuMemory()]
        return contestant.command(folder)

    def collect(run: Run, folder: Path) -> Metrics:
        contestant.collect(run, folder)  # for what it removes
        found = per_round(run, rounds)
        found["images_s"] = CLIENTS * images / found["wall_s"]
        peak = memory[0].stop()
        return found if peak is None else found | {"gpu_mb": peak}

    return replace(contestant, command=command, collect=collect)


class GpuMemory:
    """The peak of the memory in use on the first GPU since the object was made, above what was in use then."""

    def __init__(self, read: "Callable[[], float | None] | None" = None, every_s: float = 0.2) -> None:
        self._read, self._every = read or used_mb, every_s
        self._before = self._peak = self._read()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if self._before is not None:
            self._thread.start()

    def stop(self) -> float | None:
        """Return the peak in MB, ``None`` without a GPU."""
        self._stopped.set()
        if self._before is None or self._peak is None:
            return None
        self._thread.join()
        return self._peak - self._before

    def _watch(self) -> None:
        while not self._stopped.wait(self._every):
            self._peak = max(self._peak or 0.0, self._read() or 0.0)


def used_mb() -> float | None:
    """Return the memory in use on the first GPU in MB, ``None`` without one."""
    query = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.CalledProcessError, ValueError):
        return float(subprocess.check_output(query, text=True, stderr=subprocess.DEVNULL))
    return None


def _name(where: str) -> str:
    if where == "cpu":
        return "cpu, tiny sizes: this says nothing about a GPU"
    import torch

    return f"{where} ({torch.cuda.get_device_name(0)})"


if __name__ == "__main__":
    from benchmarks.__main__ import main

    sys.exit(main(["--only", "gpu", *sys.argv[1:]]))
