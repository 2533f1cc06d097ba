"""Table files: which rows a paper's table has, what each runs, and what the paper prints.

A file may name another one with ``common``, which holds what several tables share. Settings are merged in this order,
later ones on top: the scale, the data set, the row, the row's overrides for the scale, ``--set``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.papers.replicate.schema import Row, Scale, Table
from flows.settings.dotted import flat, merge, nested
from flows.settings.files import load_preset, parse_overrides, read_yaml
from flows.settings.renames import refuse_old_row_keys
from flows.settings.schema import Settings, validate
from models.errors import UserError

_FOLDER = "tables"
_SHARED = "-rows.yaml"  # end of the names of files that tables share


@dataclass(frozen=True)
class PlannedRun:
    """One run of a row.

    Attributes:
        row: Name of the row.
        seed: Seed of the training.
        settings: Settings of the run; ``None`` if they are not valid.
        rounds: Rounds R at which all rows are compared.
        equal_epoch_rounds: 2R, after which a row that trains clients once a round has trained as many local epochs as
            one that trains them twice; ``None`` for the latter.
        error: Why it cannot run.
    """

    row: str
    seed: int
    settings: Settings | None
    rounds: int
    equal_epoch_rounds: int | None
    error: UserError | None = None

    @property
    def last_round(self) -> int:
        """Return the rounds that the run needs for both comparisons."""
        return self.equal_epoch_rounds or self.rounds


def shipped() -> list[str]:
    """Return the names of the shipped tables."""
    names = [entry.name for entry in (resources.files("flows.papers") / _FOLDER).iterdir()]
    own = [name for name in names if name.endswith(".yaml") and not name.endswith(_SHARED)]
    return sorted(name.removesuffix(".yaml") for name in own)


def table_path(name: str) -> Path:
    """Return the file of a shipped table, or the path of a YAML file.

    Raises:
        UserError: If ``name`` is neither.
    """
    path = Path(str(resources.files("flows.papers") / _FOLDER / f"{name}.yaml")) if name in shipped() else Path(name)
    if path.suffix not in (".yaml", ".yml"):
        expected = f"{', '.join(shipped())}, or a YAML file"
        raise UserError("no such table", where="fedscene replicate", expected=expected, found=name)
    return path


def load_table(name: str) -> Table:
    """Return a shipped table, or that of a YAML file when ``name`` is a path.

    Raises:
        UserError: If there is neither, or the file is not a table.
    """
    values = read_yaml(path := table_path(name))
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
    """Return the path of a table's common file: next to the table, or shipped."""
    local, inside = path.parent / str(name), Path(str(resources.files("flows.papers") / _FOLDER / str(name)))
    if not isinstance(name, str) or not (local.is_file() or inside.is_file()):
        expected = f"a file next to {path.name}, or a shipped one such as fmman{_SHARED}"
        raise UserError("the table's common file is missing", where=f"{path}: common", expected=expected, found=name)
    return local if local.is_file() else inside


def _rows(path: Path, rows: Any) -> Mapping[str, Any]:
    """Return the rows of a file: name -> mapping, or nothing."""
    if isinstance(rows, Mapping) and all(value is None or isinstance(value, Mapping) for value in rows.values()):
        for name, row in rows.items():
            refuse_old_row_keys(row or {}, f"{path}: rows.{name}")
        return rows
    keys = ", ".join(Row.model_fields)
    expected = f"a mapping of name to {keys}, or to nothing"
    raise UserError("the rows of a table cannot be read", where=f"{path}: rows", expected=expected, found=rows)


def data_folder(table: Table, scale: str, root: Path | None) -> Path | None:
    """Return the folder of the table's images below ``--data``; ``None`` for synthetic images.

    Raises:
        UserError: If it is missing; the message says where to get it.
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
    """Return the settings of the scale and of its images, without any row's."""
    values: dict[str, Any] = {}
    for layer in (table.scale(scale), table.dataset(scale)):
        values = _merged(values, layer.presets, layer.settings)
    if folder is not None:
        values = merge(values, {"ingest": {"path": str(folder)}})
    return values


def _check_row(row: Row, scale: str) -> None:
    """Refuse a row that sets rounds or seed, which are the scale's."""
    for values in (row.settings, row.overrides_at(scale)):
        federation = values.get("federation")
        if "seed" in values or (isinstance(federation, Mapping) and "rounds" in federation):
            raise UserError("a row may set neither seed nor federation.rounds; the scale does", where="rows")


def require_rows(rows: Collection[str], known: Collection[str]) -> None:
    """Refuse rows that a table or benchmark does not have.

    Raises:
        UserError: If there is one.
    """
    if unknown := [name for name in rows if name not in known]:
        raise UserError(
            "there is no such row", where="--rows", expected=", ".join(known), found=", ".join(sorted(unknown))
        )


def common_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Return ``section.key=value`` texts as nested settings for every row.

    Raises:
        UserError: If a text is none, or sets the seed.
    """
    top = nested(parse_overrides(overrides))
    if "seed" in top:
        raise UserError("rows have seeds, not one seed", where="--set seed", hint="--seeds 1,2,3")
    if not isinstance(federation := top.get("federation", {}), Mapping):
        raise UserError("not a section", where="--set federation", expected="federation.KEY=VALUE", found=federation)
    return top


def planned_runs(
    table: Table, scale: str, folder: Path | None, overrides: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> list[PlannedRun]:
    """Return every run of the table, row by row; a row whose settings are not valid has the error.

    Args:
        table: The table.
        scale: small or full.
        folder: Result of ``data_folder``.
        overrides: ``section.key=value`` for all rows; ``federation.rounds`` sets R; seeds are set by ``seeds``.
        seeds: Instead of the scale's.

    Raises:
        UserError: If an override is not a ``section.key=value``, or sets the seed.
    """
    size, base, top = table.scale(scale), base_values(table, scale, folder), common_overrides(overrides)
    for key, what in size.requires.items():
        if key not in flat(top):
            raise UserError(f"the rows of {table.name} need a setting", where=f"--set {key}=VALUE", expected=what)
    return [
        _planned_run(name, row, seed, size, scale, base, top)
        for name, row in table.rows.items()
        for seed in seeds or size.seeds
    ]


def _planned_run(
    name: str, row: Row, seed: int, size: Scale, scale: str, base: dict[str, Any], top: dict[str, Any]
) -> PlannedRun:
    try:
        _check_row(row, scale)
        rounds = top.get("federation", {}).get("rounds", size.rounds)
        values = merge({"evaluation": {"every": rounds}}, base)
        values = _merged(values, row.presets, row.settings)
        values = merge(merge(values, row.overrides_at(scale)), top)
        settings = validate(merge(values, {"seed": seed, "federation": {"rounds": rounds}}), f"row {name}")
        if rounds % settings.evaluation.every:
            expected = f"a divisor of the {rounds} rounds, at which rows are compared"
            found = settings.evaluation.every
            raise UserError(
                "the table's round would not be evaluated", where="evaluation.every", expected=expected, found=found
            )
    except UserError as error:
        return PlannedRun(name, seed, None, size.rounds, None, error)
    # Two rounds with one local training each have as many local epochs as one round with two
    epochs = None if row.local_trainings_per_round == 2 else 2 * rounds
    longer = settings.federation.model_copy(update={"rounds": epochs or rounds})
    return PlannedRun(name, seed, settings.model_copy(update={"federation": longer}), rounds, epochs)


def _merged(values: dict[str, Any], presets: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    for preset in presets:
        values = merge(values, load_preset(preset))
    return merge(values, settings)
