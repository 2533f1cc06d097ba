"""The results of all workloads in one JSON file; a run replaces the workloads that it measured."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.contestant import Metrics


@dataclass
class Entry:
    """A contestant's results.

    Attributes:
        title: What the page calls it.
        runs: The figures of each run.
        fault: Why it has none, or not all; "" if nothing went wrong.
    """

    title: str
    runs: list[Metrics] = field(default_factory=list)
    fault: str = ""


@dataclass
class Result:
    """A workload's results.

    Attributes:
        entries: Contestant -> its results, in the order of the page.
        facts: What was run: sizes, settings.
        machine: Where and when.
        repeats: Runs of each contestant.
        quick: Whether the sizes were those of ``--quick``, which mean nothing.
        seconds: How long it took altogether.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    repeats: int = 0
    quick: bool = False
    seconds: float = 0.0

    def runs(self, name: str) -> list[Metrics]:
        """Return a contestant's runs, none if it is unknown."""
        return self.entries[name].runs if name in self.entries else []


def load(path: Path) -> dict[str, Result]:
    """Return workload -> result; empty without a file."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return {
        name: Result(**(value | {"entries": {key: Entry(**entry) for key, entry in value["entries"].items()}}))
        for name, value in stored.items()
    }


def save(path: Path, results: dict[str, Result]) -> None:
    """Write workload -> result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: asdict(result) for name, result in results.items()}, indent=1) + "\n")


def machine(commit: str) -> dict[str, Any]:
    """Return what a figure depends on: processor, cores, versions, and the load before the start."""
    with open("/proc/cpuinfo") as file:  # noqa: PTH123 - not a Path's job
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_before": round(os.getloadavg()[0], 2),
    }
