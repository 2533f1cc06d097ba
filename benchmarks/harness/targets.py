"""The targets of the benchmarks: what is compared, how good it should be, and how to read it off the results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness.figures import median, ratio
from benchmarks.harness.results import Result

Results = Mapping[str, Result]
Reading = Callable[[Results], float | None]


@dataclass(frozen=True)
class Target:
    """One row of the page.

    Attributes:
        what: What is measured.
        limit: The value that should be reached.
        at_least: Whether more is better.
        read: Reads the value off the results; ``None`` if it was not measured.
        unit: Behind the numbers.
        how: How it is measured, if it is not by ``make bench`` alone.
        remark: What the value does not say.
        profile: Where the time goes, for a target that is not met.
    """

    what: str
    limit: float
    read: Reading
    at_least: bool = False
    unit: str = ""
    how: str = ""
    remark: str = ""
    profile: str = ""

    def met(self, value: float) -> bool:
        """Return whether a value reaches the limit."""
        return value >= self.limit if self.at_least else value <= self.limit


def of(workload: str, top: str, bottom: str, figure: str, factor: float = 1.0) -> Reading:
    """Return the reading of ``factor`` times a ratio of medians of two contestants."""

    def read(results: Results) -> float | None:
        result = results.get(workload)
        found = ratio(result.runs(top), result.runs(bottom), figure) if result else None
        return None if found is None else factor * found

    return read


def alone(workload: str, name: str, figure: str) -> Reading:
    """Return the reading of a contestant's median."""

    def read(results: Results) -> float | None:
        result = results.get(workload)
        return median(result.runs(name), figure) if result else None

    return read


def difference(workload: str, more: str, less: str, figure: str) -> Reading:
    """Return the reading of the difference of two contestants' medians."""

    def read(results: Results) -> float | None:
        top, bottom = alone(workload, more, figure)(results), alone(workload, less, figure)(results)
        return None if top is None or bottom is None else top - bottom

    return read


def on_a_gpu(read: Reading) -> Reading:
    """Return a reading of the workload ``gpu`` that counts only if it ran on a GPU."""

    def checked(results: Results) -> float | None:
        gpu = results.get("gpu")
        return read(results) if gpu and str(gpu.facts.get("device", "")).startswith("cuda") else None

    return checked


TARGETS = (
    Target(
        "pfl-mini, CPU, 1 worker / hand-written loop",
        1.03,
        of("pfl-mini", "ours-1", "hand-1", "cpu_s"),
        profile="A client costs about 24 ms beyond its training, which takes 70 to 100 ms here: sha256 of its "
        "update when it is written and again when it is read (7 ms for 6.5 MB at 1.8 GB/s, which is what "
        "the processor's instructions give), writing the file (6), the check of names, shapes and finite "
        "values (5), its share of the mean (4), the network around the weights (2.5). The digests stay: "
        "they make a run resumable and show a damaged file. They alone are more than the 2 to 3 ms that the "
        "target leaves.",
    ),
    Target(
        "pfl-mini, wall, 2 workers / loop in 2 processes",
        1.05,
        of("pfl-mini", "ours-2", "hand-2", "wall_s"),
        profile="The same cost in both processes; besides, check, mean and record of a round (about 0.1 s for ten "
        "updates of 6.5 MB) run in the main process while the workers wait.",
    ),
    Target(
        "engine prefect, extra CPU a round of 10 clients",
        0.15,
        difference("pfl-mini", "ours-prefect-1", "ours-1", "cpu_s"),
        unit=" s",
    ),
    Target("empty round, 10 clients, engine local", 0.06, alone("empty-10", "ours-1", "wall_s"), unit=" s"),
    Target("start to the first trained batch, engine local", 6.0, alone("start", "ours-local-1", "seconds"), unit=" s"),
    Target(
        "FMMAN cycle / two FedAvg rounds, CPU",
        1.20,
        of("fmman-cost", "fmman", "fedavg", "cpu_s", 0.5),
        profile="Every batch also passes through the frozen prototypes, without a gradient: their masks and "
        "embeddings depend on the batch's augmented images, so they are not the same twice. Another machine "
        "(Xeon) measured 1.13.",
    ),
    Target("demo round, 2 workers / its trainings in 2 processes", 1.05, of("demo", "ours-local", "hand", "wall_s")),
    Target(
        "`make run` after installation",
        5.0,
        alone("make-run", "make-run", "minutes"),
        unit=" min",
        how='`make bench ARGS="--only make-run"`',
    ),
    Target(
        "ingest, 64 pixels / bare Pillow",
        0.9,
        of("ingest-64", "ours", "bare", "images_s"),
        at_least=True,
        profile="Opening, decoding and resizing so small a file takes 0.13 ms of CPU, the whole ingest 0.5 ms: "
        "sha256 of file and pixels, checks of header, orientation, depth and colours, the row of the "
        "manifest, duplicates, split, and the files of the data set. Each is small, and all are wanted. At "
        "640 pixels decoding takes 3 ms, and ingest is as fast as the bare loop.",
    ),
    Target(
        "aggregate 1,000 updates / reading them from the disk",
        0.7,
        of("aggregate", "mean", "disk", "mb_s"),
        at_least=True,
        remark="47 GB, which no memory of this size holds",
    ),
    Target("memory, 1,000 updates / 100", 1.10, of("aggregate", "mean", "mean-few", "peak_mb")),
    Target(
        "FMMAN, MB a cycle / a FedLGT round",
        1.0,
        of("fmman-cost", "fmman-compressed", "fedlgt", "mb"),
        remark="with the preset `compressed`, at the same macro-AP (docs/algorithms/aggregation.md); without it 3.67",
    ),
    Target(
        "GPU, ResNet-18, batch 64, images/s of a round / plain loop",
        0.9,
        on_a_gpu(of("gpu", "fed-64", "plain-64", "images_s")),
        at_least=True,
        how="`python benchmarks/gpu.py` on a machine with a GPU",
    ),
    Target(
        "whole test suite",
        5.0,
        alone("suite", "suite", "minutes"),
        unit=" min",
        how='`make bench ARGS="--only suite"`',
        profile="4,834 tests; this run shared the two cores with other tests and failed in twelve, which were mended "
        "after it. Alone, 4,343 tests took 5.3 minutes.",
    ),
)
