"""The workloads by name, in the order of the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from benchmarks.harness.contestant import Contestant
from benchmarks.peers import Peers

WORKLOADS = {
    "empty-10": "benchmarks.workloads.empty",
    "empty-50": "benchmarks.workloads.empty",
    "pfl-mini": "benchmarks.workloads.pfl_mini",
    "flair-mini": "benchmarks.workloads.flair_mini",
    "fmman-cost": "benchmarks.workloads.fmman_cost",
    "demo": "benchmarks.workloads.demo",
    "aggregate": "benchmarks.workloads.aggregate",
    "ingest-64": "benchmarks.workloads.ingest_images",
    "ingest-640": "benchmarks.workloads.ingest_images",
    "start": "benchmarks.workloads.start",
    "long-run": "benchmarks.workloads.long_run",
    "make-run": "benchmarks.workloads.commands",
    "suite": "benchmarks.workloads.commands",
    "gpu": "benchmarks.gpu",
}
ON_REQUEST = ("make-run", "suite", "gpu")  # not among the workloads that run if none is named


@dataclass(frozen=True)
class Options:
    """What all workloads get.

    Attributes:
        work: Folder for data and runs, kept from one call to the next.
        quick: Tiny sizes, to see that everything runs.
        peers: The other frameworks.
        say: Writes a line of progress.
    """

    work: Path
    quick: bool
    peers: Peers
    say: Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A workload that is ready to run.

    Attributes:
        contestants: In the order of the page.
        facts: What is run, for the page: sizes and settings.
    """

    contestants: Sequence[Contestant]
    facts: dict[str, Any]


@dataclass(frozen=True)
class About:
    """What the page says of a workload.

    Attributes:
        title: Its heading.
        text: What is run.
        reference: The contestant that the others are divided by.
        figures: Figure -> heading of its column; the ratio to the reference is given for ``ratios``.
        ratios: Figures that are divided by the reference's.
        equal: Figure that must be the same for all contestants that have it; "" for none.
        tolerance: Largest relative difference that counts as the same.
    """

    title: str
    text: str
    reference: str
    figures: dict[str, str]
    ratios: tuple[str, ...] = ()
    equal: str = ""
    tolerance: float = 0.0


class Workload(Protocol):
    """A module of this package."""

    def about(self, name: str) -> About:
        """Return what the page says."""
        ...

    def prepare(self, name: str, options: Options) -> Prepared:
        """Make the data; return the contestants."""
        ...


def load_workload(name: str) -> Workload:
    """Import a workload's module."""
    return import_module(WORKLOADS[name])  # type: ignore[return-value]
