"""Table files: which rows a paper's table has, what each runs, and what the paper prints.

A file may name another one with ``common``, which holds what several tables share. Settings are laid over each other in
this order: the scale, the data set, the row, the row's own for the scale, ``--set``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from flows.settings.dotted import merge, nested
from flows.settings.files import load_preset, parse_overrides, read_yaml
from flows.settings.schema import Settings, validate
from models.base_settings import Section
from models.errors import UserError

SCALES = ("small", "full")
METRICS = ("macro_ap", "cf1", "micro_ap", "micro_f1")  # the columns of the paper's tables, in its order
Percent = Annotated[float, Field(ge=0, le=100)]
_FOLDER = "tables"
_SHARED = "-rows.yaml"  # ends files that tables name as their common one


class Row(Section):
    """One row: settings of its own, over those of the scale and of the data."""

    presets: list[str] = Field([], description="Shipped presets, in order.")
    settings: dict[str, Any] = Field({}, description="Settings over the presets.")
    at: dict[Literal["small", "full"], dict[str, Any]] = Field({}, description="Settings for one scale only.")
    stages: Literal[1, 2] = Field(1, description="Local trainings of a client in a round.")
    note: str | None = Field(None, description="What a reader of the row must know.")


class Scale(Section):
    """How large everything is."""

    presets: list[str] = Field([], description="Shipped presets, in order.")
    settings: dict[str, Any] = Field({}, description="Settings over the presets.")
    rounds: int = Field(ge=1, description="Rounds R of a two-stage row; single-stage rows go on to 2R.")
    seeds: list[int] = Field(min_length=1, description="Seeds of the training, each once.")
    data_seed: int = Field(7, ge=0, description="Seed of drawing, splitting and dealing the images.")
    note: str = Field("", description="What the figures mean at this scale.")

    @model_validator(mode="after")
    def _each_seed_counts_once(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: each counts once, found {self.seeds}")
        return self


class Needs(Section):
    """Images that cannot be drawn."""

    folder: str = Field(description="Its name below --data.")
    origin: str = Field(description="Where one gets it.")


class DataSet(Section):
    """The images of a table at one scale."""

    title: str = Field(description="What they are.")
    presets: list[str] = Field([], description="Shipped presets, in order.")
    settings: dict[str, Any] = Field({}, description="Settings over the presets.")
    needs: Needs | None = Field(None, description="A folder of images; null: they are drawn.")
    note: str | None = Field(None, description="How they differ from the paper's.")


class Table(Section):
    """A table of a paper, and how its rows are run here."""

    name: str = Field(description="The file's name.")
    title: str = Field(description="What the table shows.")
    source: str = Field("", description="Paper and number of the table.")
    data: str = Field(description="One of `datasets`.")
    rows: dict[str, Row] = Field(min_length=1, description="Name, as the paper's -> row, in order.")
    main: list[str] = Field([], description="Rows of the image of classes.")
    paper: dict[str, tuple[Percent, Percent, Percent, Percent]] = Field(
        {}, description="Row -> printed macro-AP, macro-F1, micro-AP, micro-F1 in percent."
    )
    scales: dict[Literal["small", "full"], Scale]
    datasets: dict[str, dict[Literal["small", "full"], DataSet]]
    notes: list[str] = Field([], description="What a reader of the table must know.")

    @model_validator(mode="after")
    def _names_are_there(self) -> Self:
        if self.data not in self.datasets:
            raise ValueError(f"data: {self.data} is none of datasets: {', '.join(self.datasets)}")
        for key, names in (("paper", self.paper), ("main", self.main)):
            unknown = [name for name in names if name not in self.rows]
            if unknown:
                raise ValueError(f"{key} names rows that the table does not have: {', '.join(unknown)}")
        return self

    def scale(self, name: str) -> Scale:
        """One scale.

        Raises:
            UserError: If the table does not have it.
        """
        if name not in self.scales or name not in self.datasets[self.data]:
            there = ", ".join(scale for scale in self.scales if scale in self.datasets[self.data])
            raise UserError("the table has no such scale", where=self.name, expected=there, found=name)
        return self.scales[name]

    def dataset(self, scale: str) -> DataSet:
        """The images at one scale."""
        return self.datasets[self.data][scale]  # type: ignore[index]


@dataclass(frozen=True)
class Job:
    """One run of a row.

    Attributes:
        row: Name of the row.
        seed: The training's seed.
        settings: What it runs with; ``None`` where they are not valid.
        rounds: R, at which all rows are compared.
        epochs: 2R, at which a single-stage row has trained as long as a two-stage one; ``None`` for the latter.
        error: Why it cannot run.
    """

    row: str
    seed: int
    settings: Settings | None
    rounds: int
    epochs: int | None
    error: UserError | None = None


def shipped() -> list[str]:
    """Names of the shipped tables."""
    names = [
        entry.name for entry in (resources.files("flows.papers") / _FOLDER).iterdir() if entry.name.endswith(".yaml")
    ]
    return sorted(name.removesuffix(".yaml") for name in names if not name.endswith(_SHARED))


def load_table(name: str) -> Table:
    """A shipped table, or a YAML file when ``name`` is a path.

    Raises:
        UserError: If there is neither, or the file is not a table.
    """
    path = Path(str(resources.files("flows.papers") / _FOLDER / f"{name}.yaml")) if name in shipped() else Path(name)
    if path.suffix not in (".yaml", ".yml"):
        expected = f"{', '.join(shipped())}, or a YAML file"
        raise UserError("no such table", where="fedscene replicate", expected=expected, found=name)
    values = read_yaml(path)
    common = read_yaml(_common(path, values.pop("common"))) if "common" in values else {}
    rows, shared = _rows(path, values.get("rows")), _rows(path, common.pop("rows", {}))
    own = {row: merge(shared.get(row) or {}, value or {}) for row, value in rows.items()}
    missing = [row for row, value in rows.items() if value is None and row not in shared]
    if missing:
        raise UserError("rows without settings that the common file does not have", where=path, found=missing)
    try:
        return Table.model_validate(merge(common, values) | {"name": path.stem, "rows": own})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors(include_url=False)]
        raise UserError("this is not a valid table", where=path, found="; ".join(faults)) from error


def _common(path: Path, name: Any) -> Path:
    """The file that a table names as common: beside it, or shipped."""
    beside, inside = path.parent / str(name), Path(str(resources.files("flows.papers") / _FOLDER / str(name)))
    if not isinstance(name, str) or not (beside.is_file() or inside.is_file()):
        expected = f"a file beside {path.name}, or a shipped one such as fmman{_SHARED}"
        raise UserError("the table's common file is not there", where=f"{path}: common", expected=expected, found=name)
    return beside if beside.is_file() else inside


def _rows(path: Path, rows: Any) -> Mapping[str, Any]:
    """The rows of a file: name -> mapping, or nothing."""
    if isinstance(rows, Mapping) and all(value is None or isinstance(value, Mapping) for value in rows.values()):
        return rows
    expected = "a mapping of name to settings (presets, settings, at, stages, note), or to nothing"
    raise UserError("the rows of a table cannot be read", where=f"{path}: rows", expected=expected, found=rows)


def data_folder(table: Table, scale: str, root: Path | None) -> Path | None:
    """The folder of the table's images below ``--data``; ``None`` if they are drawn.

    Raises:
        UserError: If it is missing; says what it is and where one gets it.
    """
    needs = table.dataset(scale).needs
    if needs is None:
        return None
    folder = None if root is None else root / needs.folder
    if folder is None or not folder.is_dir():
        raise UserError(
            f"{table.name} at scale {scale} needs images that are not shipped: {table.dataset(scale).title}",
            where=folder or "--data",
            expected=f"a folder {needs.folder} in the folder that --data names",
            hint=needs.origin,
        )
    return folder


def base_values(table: Table, scale: str, folder: Path | None) -> dict[str, Any]:
    """Settings of the scale and of its images, before any row's."""
    values: dict[str, Any] = {}
    for layer in (table.scale(scale), table.dataset(scale)):
        values = _over(values, layer.presets, layer.settings)
    if folder is not None:
        values = merge(values, {"ingest": {"path": str(folder)}})
    return values


def _refused(row: Row, scale: str) -> None:
    """A row sets neither rounds nor seed: those are the table's."""
    for values in (row.settings, row.at.get(scale, {})):  # type: ignore[call-overload]
        federation = values.get("federation")
        if "seed" in values or (isinstance(federation, Mapping) and "rounds" in federation):
            raise UserError("a row may set neither seed nor federation.rounds; the scale does", where="rows")


def jobs(
    table: Table, scale: str, folder: Path | None, overrides: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> list[Job]:
    """Every run of the table, row by row; a row whose settings are not valid carries the error.

    Args:
        table: The table.
        scale: small or full.
        folder: From ``data_folder``.
        overrides: ``section.key=value`` for all rows; ``federation.rounds`` is R, and seeds are given by ``seeds``.
        seeds: Instead of the scale's.

    Raises:
        UserError: If an override is no ``section.key=value``, or sets the seed.
    """
    dotted = parse_overrides(overrides)
    if "seed" in nested(dotted):
        raise UserError("a table has seeds, not one seed", where="--set seed", hint="--seeds 1,2,3")
    size, base, top = table.scale(scale), base_values(table, scale, folder), nested(dotted)
    return [
        _job(name, row, seed, size, scale, base, top)
        for name, row in table.rows.items()
        for seed in seeds or size.seeds
    ]


def _job(name: str, row: Row, seed: int, size: Scale, scale: str, base: dict[str, Any], top: dict[str, Any]) -> Job:
    try:
        _refused(row, scale)
        federation = top.get("federation", {})
        if not isinstance(federation, Mapping):
            expected = "federation.KEY=VALUE"
            raise UserError("not a section", where="--set federation", expected=expected, found=federation)
        rounds = federation.get("rounds", size.rounds)
        values = merge({"evaluation": {"every": rounds}}, base)
        values = _over(values, row.presets, row.settings)
        values = merge(merge(values, row.at.get(scale, {})), top)  # type: ignore[call-overload]
        settings = validate(merge(values, {"seed": seed, "federation": {"rounds": rounds}}), f"row {name}")
        if rounds % settings.evaluation.every:
            expected = f"a divisor of the {rounds} rounds, at which rows are compared"
            found = settings.evaluation.every
            raise UserError(
                "the table's round would not be scored", where="evaluation.every", expected=expected, found=found
            )
    except UserError as error:
        return Job(name, seed, None, size.rounds, None, error)
    # A two-stage round trains every client twice: two rounds of the others are as many local epochs
    epochs = None if row.stages == 2 else 2 * rounds
    longer = settings.federation.model_copy(update={"rounds": epochs or rounds})
    return Job(name, seed, settings.model_copy(update={"federation": longer}), rounds, epochs)


def _over(values: dict[str, Any], presets: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    for preset in presets:
        values = merge(values, load_preset(preset))
    return merge(values, settings)
