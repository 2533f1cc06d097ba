"""What the runs of a benchmark have measured, in memory and in ``NAME.json``."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flows.papers.benchmark.bands import Band, band, inside
from flows.papers.benchmark.cell_run import CellRun
from flows.papers.benchmark.claims import judge
from flows.papers.benchmark.curves import last
from flows.papers.benchmark.schema import Benchmark, Claim
from models.errors import UserError
from tasks.core.summary_statistics import mean_and_std


@dataclass
class CellRow:
    """A row's runs, by seed.

    Attributes:
        name: The row.
        runs: Runs with at least one round, in the order of the seeds.
        failed: Why a run failed, ``None`` if none did.
    """

    name: str
    runs: list[CellRun] = field(default_factory=list)
    failed: str | None = None


@dataclass
class BenchmarkReport:
    """All rows of a benchmark with their runs.

    Attributes:
        benchmark: The file.
        scale: small or full.
        rows: Row -> its runs.
        mlflow_run_id: The benchmark's run in MLflow, ``None`` if tracking is off.
    """

    benchmark: Benchmark
    scale: str
    rows: dict[str, CellRow]
    mlflow_run_id: str | None = None

    def finished(self, name: str) -> list[CellRun]:
        """Return the finished runs of a row."""
        return [run for run in self.rows[name].runs if run.finished]

    def pick(self, name: str) -> str:
        """Return which round of a row counts."""
        return self.benchmark.protocols[self.benchmark.rows[name].protocol].pick

    def figure(self, name: str) -> tuple[float, float | None]:
        """Return mean and sample standard deviation of a row's finished runs, percent; NaN without one."""
        pick = self.pick(name)
        return mean_and_std([run.value(pick) for run in self.finished(name)])

    def also(self, name: str, metric: str) -> tuple[float, float | None]:
        """Return mean and standard deviation over the seeds of a further metric after the last evaluated round."""
        return mean_and_std([last(run.metric(metric)) for run in self.finished(name)])

    def band(self, name: str) -> Band | None:
        """Return a row's band, widened by our own standard deviation; ``None`` if it has no published value."""
        values = self.benchmark.band_values(name)
        return band(values, self.figure(name)[1]) if values else None

    def verdict(self, name: str) -> str:
        """Say whether a row's figure agrees with the published ones."""
        row, runs = self.benchmark.rows[name], self.rows[name]
        if row.not_yet is not None:
            return "not yet available"
        mean, _ = self.figure(name)
        if not math.isfinite(mean):
            most = max((len(run.curve) for run in runs.runs), default=0)
            state = f"{most} of {runs.runs[0].of} rounds run" if most else "not run yet"
            return f"failed: {one_line(runs.failed)}" if runs.failed and not most else state
        if self.scale == "small" and row.targets:
            return "ran"  # a check of minutes says nothing of the figures
        if row.floor is not None:
            return f"above {row.floor.above:g}" if mean > row.floor.above else f"not above {row.floor.above:g}"
        bounds = self.band(name)
        if bounds is None:
            return "run; no published level"
        if inside(mean, bounds):
            return "inside"
        return f"outside by {bounds[0] - mean if mean < bounds[0] else mean - bounds[1]:.2f}"

    def claim(self, claim: Claim) -> tuple[str, str]:
        """Return what we measured for a claim, and whether it holds."""
        finished = {name: self.finished(name) for name in claim.rows}
        return judge(self.benchmark, self.scale, finished, claim)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as it is written to ``NAME.json``."""
        return {
            "benchmark": self.benchmark.name,
            "scale": self.scale,
            "rows": {
                name: {
                    "published": [entry.model_dump() for entry in self.benchmark.rows[name].published],
                    "band": self.band(name),
                    "mean": self.figure(name)[0],
                    "std": self.figure(name)[1],
                    "verdict": self.verdict(name),
                    "runs": [asdict(run) for run in row.runs],
                    "failed": row.failed,
                }
                for name, row in self.rows.items()
            },
            "claims": [
                claim.model_dump() | dict(zip(("measured", "verdict"), self.claim(claim), strict=True))
                for claim in self.benchmark.claims
            ],
            "mlflow_run_id": self.mlflow_run_id,
        }


def read_record(path: Path, benchmark: str, scale: str) -> dict[str, list[CellRun]]:
    """Return the runs of an earlier ``NAME.json``: row -> runs; nothing if there is none.

    Raises:
        UserError: If the file is no such record, or one of another benchmark or scale, which must not be overwritten.
    """
    if not path.is_file():
        return {}
    expected = f"the file that fedscene replicate {benchmark} --scale {scale} wrote"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        held = values["benchmark"], values["scale"]
        runs = {name: [_run_of(run) for run in row["runs"]] for name, row in values["rows"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            "the record of earlier runs cannot be read",
            where=path,
            expected=expected,
            found=f"{type(error).__name__}: {error}",
            hint="restore it, or move it away to begin a new record",
        ) from error
    if held != (benchmark, scale):
        hint = "choose another folder with --out"
        raise UserError("the record is of other runs", where=path, expected=expected, found=" ".join(held), hint=hint)
    return runs


def _run_of(values: dict[str, Any]) -> CellRun:
    also = {name: _curve(curve) for name, curve in values.get("also", {}).items()}
    return CellRun(**{**values, "curve": _curve(values["curve"]), "also": also})


def _curve(values: Sequence[Any]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def newest(here: Iterable[CellRun], recorded: Iterable[CellRun]) -> list[CellRun]:
    """Return one run per seed, in the order of the seeds: the one of this machine unless the recorded one is longer."""
    found = {run.seed: run for run in recorded}
    for run in here:
        if run.seed not in found or len(run.curve) >= len(found[run.seed].curve):
            found[run.seed] = run
    return [found[seed] for seed in sorted(found)]


def one_line(text: str | None) -> str:
    """Return a text without line breaks."""
    return " ".join((text or "").split())
