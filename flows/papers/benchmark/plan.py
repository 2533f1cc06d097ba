"""The runs of a benchmark's rows: their settings, where their images are, and how much work they are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.papers.benchmark.schema import Benchmark, Images, Row, ScaleName, Variant
from flows.papers.replicate.tables import PlannedRun, common_overrides, require_rows
from flows.settings.dotted import flat, merge
from flows.settings.files import load_preset
from flows.settings.schema import Settings, validate
from models.errors import UserError

# Overrides that are no deviation: where and how long rows run, and what is shown of them
_NEUTRAL = (
    "federation.rounds", "federation.workers", "federation.engine", "federation.device", "federation.client_timeout_s",
    "federation.clients_per_task", "federation.clients_per_gpu", "tracking.", "report.", "ingest.path",
)  # fmt: skip


@dataclass(frozen=True)
class RowPlan:
    """A row and its runs.

    Attributes:
        name: The row.
        row: What the file says of it.
        variant: The images that are used; ``None`` for synthetic ones, and if none are found.
        images: Folder of the images, ``None`` likewise.
        missing: Why there are no images, ``None`` if there are.
        runs: One per seed; their settings do not name the images' folder if it is missing.
        passes: Training passes over an image of all runs together, estimated; 0 if the settings are not valid.
    """

    name: str
    row: Row
    variant: Variant | None
    images: Path | None
    missing: UserError | None
    runs: list[PlannedRun]
    passes: int


@dataclass(frozen=True)
class BenchmarkPlan:
    """What a call runs and shows.

    Attributes:
        benchmark: The file.
        scale: small or full.
        rows: All rows, in order.
        selected: Names of the rows that may be run; of the others, finished work is shown.
        changed: The overrides that change a result, as text, "" if there are none.
    """

    benchmark: Benchmark
    scale: ScaleName
    rows: list[RowPlan]
    selected: frozenset[str]
    changed: str = ""

    def row(self, name: str) -> RowPlan:
        """Return a row by name."""
        return next(row for row in self.rows if row.name == name)

    def to_do(self) -> list[tuple[RowPlan, PlannedRun]]:
        """Return the selected runs: the first seed of every row, then the second, ..."""
        rows = [row for row in self.rows if row.name in self.selected and row.row.not_yet is None]
        most = max((len(row.runs) for row in rows), default=0)
        return [(row, row.runs[place]) for place in range(most) for row in rows if place < len(row.runs)]


def make_benchmark_plan(
    benchmark: Benchmark,
    scale: str,
    root: Path | None,
    rows: Collection[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> BenchmarkPlan:
    """Return the runs of a benchmark, their settings checked.

    Args:
        benchmark: The file.
        scale: small or full.
        root: Folder of image folders (``--data``).
        rows: Rows to run; none: all that can be run.
        overrides: ``section.key=value`` for all rows; ``federation.rounds`` shortens runs.
        seeds: Instead of the protocols'.

    Raises:
        UserError: If the scale or a row is unknown, a selected row cannot be run yet, or an override is not one.
    """
    if scale not in ("small", "full"):
        raise UserError("no such scale", where=benchmark.name, expected="small, full", found=scale)
    require_rows(rows, benchmark.rows)
    for name in rows:
        if (reason := benchmark.rows[name].not_yet) is not None:
            raise UserError("this row cannot be run yet", where=f"row {name}", found=reason)
    top = common_overrides(overrides)
    scale_name: ScaleName = "small" if scale == "small" else "full"
    planned = [_row_plan(benchmark, name, scale_name, root, top, seeds) for name in benchmark.rows]
    changed = ", ".join(f"{key}={value}" for key, value in flat(top).items() if not key.startswith(_NEUTRAL))
    return BenchmarkPlan(benchmark, scale_name, planned, frozenset(rows or benchmark.rows), changed)


def _row_plan(
    benchmark: Benchmark,
    name: str,
    scale: ScaleName,
    root: Path | None,
    top: Mapping[str, Any],
    seeds: Sequence[int] | None,
) -> RowPlan:
    row = benchmark.rows[name]
    protocol = benchmark.protocols[row.protocol]
    images = benchmark.images[protocol.images]
    variant, folder, missing = None, None, None
    try:
        variant, folder = find_images(images, root)
    except UserError as error:
        missing, variant = error, images.variants[0]
    if row.not_yet is not None:
        return RowPlan(name, row, variant, folder, missing, [], 0)
    values = row_values(benchmark, name, scale, variant, folder)
    rounds = protocol.rounds if scale == "full" else protocol.small.rounds
    planned = seeds or (protocol.seeds if scale == "full" else protocol.small.seeds)
    runs = [_planned_run(name, seed, rounds, values, top) for seed in planned]
    passes = sum(training_passes(run.settings, images) for run in runs if run.settings is not None)
    return RowPlan(name, row, variant if folder else None, folder, missing, runs, passes)


def row_values(
    benchmark: Benchmark, name: str, scale: ScaleName, variant: Variant | None, folder: Path | None
) -> dict[str, Any]:
    """Return a row's settings without seed and rounds."""
    row = benchmark.rows[name]
    protocol = benchmark.protocols[row.protocol]
    layers = [benchmark.images[protocol.images].settings, variant.settings if variant else {}]
    layers += [{"ingest": {"path": str(folder)}}] if folder else []
    layers += [protocol.settings, protocol.small.settings if scale == "small" else {}]
    layers += [load_preset(preset) for preset in row.presets]
    layers += [row.settings, row.overrides.get(scale, {})]
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, layer)
    return values


def _planned_run(name: str, seed: int, rounds: int, values: Mapping[str, Any], top: Mapping[str, Any]) -> PlannedRun:
    values = merge(merge(values, {"seed": seed, "federation": {"rounds": rounds}}), top)
    try:
        settings = validate(values, f"row {name}")
    except UserError as error:
        return PlannedRun(name, seed, None, rounds, None, error)
    return PlannedRun(name, seed, settings, settings.federation.rounds, None)


def find_images(images: Images, root: Path | None) -> tuple[Variant | None, Path | None]:
    """Return the first variant of the images that is there, and its folder; two ``None`` for synthetic images.

    Args:
        images: The images.
        root: The folder that ``--data`` names.

    Raises:
        UserError: If no variant is there; the message says where to get them.
    """
    for variant in images.variants:
        below = [] if root is None else [root / variant.needs.folder]
        for folder in [*below, *map(Path, variant.usual)]:
            if folder.is_dir():
                return variant, folder
    if not images.variants:
        return None, None
    folders = " or ".join(variant.needs.folder for variant in images.variants)
    raise UserError(
        f"the images are not here: {images.title}",
        where=root or "--data",
        expected=f"a folder {folders} in the folder that --data names",
        hint="; or ".join(variant.needs.origin for variant in images.variants),
    )


def training_passes(settings: Settings, images: Images) -> int:
    """Return about how many times a run trains on an image: rounds x participants' images x epochs."""
    partition, federation, train = settings.partition, settings.federation, settings.train
    count = float(images.train + images.test if partition.images == "all" else images.train)
    if partition.local.scheme == "local":
        count *= 1 - partition.local.val - partition.local.test
    participants = federation.clients_per_round or partition.clients or 1
    share = participants / partition.clients if partition.clients else 1.0
    if (steps := getattr(train, "steps", None)) is not None:
        return round(federation.rounds * participants * steps * train.batch_size)
    return round(federation.rounds * share * count * train.epochs)


def without_runs(plan: BenchmarkPlan) -> BenchmarkPlan:
    """Return the plan with nothing selected, to show what is finished."""
    return replace(plan, selected=frozenset())
