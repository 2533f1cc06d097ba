"""One run of a row of a benchmark, as it is kept in ``NAME.json``."""

from dataclasses import dataclass, field

from flows.papers.benchmark.curves import best, last


@dataclass(frozen=True)
class CellRun:
    """A run of a row, finished or not.

    Attributes:
        seed: Seed of partition and training.
        run_id: The run.
        code: Version of the code that made it.
        of: Rounds that the row needs.
        curve: The metric in percent after every finished round; NaN where it was not evaluated.
        seconds: Wall time of the rounds.
        images: Deviations of this run: of the images that were used, and of settings that ``--set`` changed; "" if
            there are none.
        also: Further metric -> its curve, likewise.
        clients: Each client's value after the last evaluated round, where the metric is one of clients.
    """

    seed: int
    run_id: str
    code: str
    of: int
    curve: list[float]
    seconds: float
    images: str = ""
    also: dict[str, list[float]] = field(default_factory=dict)
    clients: list[float] = field(default_factory=list)

    def metric(self, name: str) -> list[float]:
        """Return the curve of a metric of ``also``; "": that of the protocol's metric."""
        return self.also.get(name, []) if name else self.curve

    @property
    def finished(self) -> bool:
        """Return whether all rounds are done."""
        return len(self.curve) >= self.of

    def value(self, pick: str) -> float:
        """Return the value of the last evaluated round, or the best over the rounds; NaN without any."""
        return best(self.curve) if pick == "best" else last(self.curve)

    @property
    def headline(self) -> str:
        """Return the value of the last round in words."""
        return f"{self.value('last'):.2f} % after round {len(self.curve)}"
