"""Aggregation of many ResNet-18 updates against the speed at which their files can be read."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import ROOT, environment, python

SCRIPT = ROOT / "benchmarks" / "aggregation_memory.py"
KEPT = ("distinct", "updates", "updates.json", "state_schema.json")


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        "The updates are ResNet-18's (47 MB each; five different ones under many names, so that they are read "
        "from memory; so many different ones would have to come from the disk). They are averaged, all and a "
        "tenth of them, to see how memory grows; N models are mixed from N with a full matrix of weights. Beside "
        "that, the files are only read, from memory or from the disk, or read and written, and a loop averages "
        "them with torch. Seconds are those of the work, without the imports."
    )
    figures = {"seconds": "seconds", "mb_s": "MB/s", "peak_mb": "peak memory, MB", "cpu_s": "CPU-s"}
    return About("Aggregate", text, "disk", figures, ("seconds",))


def prepare(name: str, options: Options) -> Prepared:
    """Write the updates; return the contestants."""
    work, network = options.work / name, "small" if options.quick else "resnet18"
    work.mkdir(parents=True, exist_ok=True)
    many, few, square = (40, 10, 10) if options.quick else (1000, 100, 100)
    stores = {}
    for count in sorted({many, few, square}):
        stores[count] = work / f"{network}-{count}"
        if not (stores[count] / "updates.json").exists():
            options.say(f"  {count} updates")
            shutil.rmtree(stores[count], ignore_errors=True)
            python(work, SCRIPT, "--network", network, "--folder", stores[count], "--case", "make", count)
    mb = next((stores[many] / "distinct").iterdir()).stat().st_size / 1e6

    def ours(name: str, title: str, rule: str, count: int) -> Contestant:
        command = [SCRIPT, "--network", network, "--folder", stores[count], "--case", rule, str(count)]
        return _contestant(name, title, command, work, stores[count], count * mb)

    def bare(name: str, title: str, what: str, count: int) -> Contestant:
        return _contestant(name, title, ["-m", "benchmarks.bare", what, stores[count]], work, stores[count], count * mb)

    found = [
        bare("disk", f"read {many} files from the disk, once", "disk", many).once(),
        bare("read", f"read {many} files from memory", "read", many),
        bare("hand", f"mean of {many}, a loop in torch, once", "mean", many).once(),
        ours("mean", f"mean of {many}, FedScene", "mean", many),
        ours("mean-few", f"mean of {few}, FedScene", "mean", few),
        bare("copy", f"read and write {square} files, once", "copy", square).once(),
        ours("square", f"{square} models mixed from {square}, FedScene, once", "square", square).once(),
    ]
    return Prepared(found, {"network": network, "update_mb": round(mb, 1)})


def _contestant(
    name: str, title: str, command: Sequence[object], work: Path, store: Path, megabytes: float
) -> Contestant:
    def collect(run: Run, folder: Path) -> Metrics:
        del folder
        _clean(store)
        assert run.end is not None
        seconds = run.result["seconds"]
        peak = {"peak_mb": run.result["peak"]} if "peak" in run.result else {}
        return {"seconds": seconds, "mb_s": megabytes / seconds, "cpu_s": run.end.cpu} | peak

    def begin(folder: Path) -> Sequence[str]:
        del folder
        _clean(store)  # a run that failed leaves its outputs, which would be found
        return [sys.executable, *map(str, command)]

    return Contestant(name, title, begin, collect, environment(work))


def _clean(store: Path) -> None:
    """Remove what an aggregation has written; a finished one would be found."""
    remove: Callable[[Path], None]
    given = {update["model"]["uri"] for update in json.loads((store / "updates.json").read_text())["updates"]}
    for path in [*store.iterdir(), *(store / "updates").iterdir()]:
        if path.name not in KEPT and path.relative_to(store).as_posix() not in given:
            remove = shutil.rmtree if path.is_dir() else Path.unlink
            remove(path)
