"""The kind of problem of a data set: checked when it is made, read back from ``dataset.json``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.core.json_files import read_json
from tasks.core.problem_kind import KINDS, Kind
from tasks.data.dataset import SUMMARY
from tasks.data.formats import FORMATS, load_format, problem_kind

if TYPE_CHECKING:
    from tasks.data.ingest.settings import IngestSettings

_EXAMPLES = 8


def refuse_other_label_counts(rows: Sequence[Mapping[str, Any]], settings: "IngestSettings") -> None:
    """Refuse a single-label data set with images that have no label, or several.

    Args:
        rows: The images that stay, with ``path`` and ``labels``; ``None`` for unlabelled ones, which are accepted.
        settings: Settings of the ingest.

    Raises:
        UserError: If there are any; it counts them and names the first.
    """
    if settings.problem_kind == "multi_label":
        return
    without = [row for row in rows if row["labels"] == []]
    several = [row for row in rows if len(row["labels"] or ()) > 1]
    if not without and not several:
        return
    first = "".join(
        f"\n    {row['path']}: {', '.join(row['labels']) or 'no label'}" for row in (without + several)[:_EXAMPLES]
    )
    hint = "ingest.kind=multi_label takes them as they are"
    if without and not several:
        hint += ", ingest.keep_negatives=false leaves images without a label out"
    raise UserError(
        f"{len(without) + len(several)} of {len(rows)} images do not have exactly one label",
        where="ingest.kind",
        expected="one label for each image of a single-label data set",
        found=f"{len(without)} without a label, {len(several)} with several, the first:{first}",
        hint=hint,
    )


def dataset_kind(root: Path) -> Kind:
    """Return the kind of problem of the data set in ``root``.

    Data sets of earlier releases do not name it; they have the kind of their format.

    Raises:
        UserError: If ``dataset.json`` cannot be read or names an unknown kind.
    """
    summary = read_json(Path(root) / SUMMARY, "fedscene data ingest")
    found = summary.get("kind")
    if found is None:
        return _kind_of_format(summary)
    for kind in KINDS:
        if kind == found:
            return kind
    raise UserError("unknown kind of problem", where=Path(root) / SUMMARY, expected=" | ".join(KINDS), found=found)


def _kind_of_format(summary: Mapping[str, Any]) -> Kind:
    """Return the kind that a data set's source poses by its format, ``multi_label`` if the format is not known."""
    source, settings = summary.get("source"), summary.get("settings")
    if source not in FORMATS:
        return "multi_label"
    reader = load_format(source)
    values = settings.get(source) if isinstance(settings, Mapping) else None
    known = {key: value for key, value in (values or {}).items() if key in reader.Settings.model_fields}
    return problem_kind(reader, reader.Settings.model_validate(known))
