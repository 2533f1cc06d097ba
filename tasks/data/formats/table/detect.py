"""Checks whether a file looks like a table of images, and if not, what it lacks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.data.formats.shared.foreign_formats import foreign_columns
from tasks.data.formats.shared.path_resolver import ListedPath, PathResolver
from tasks.data.formats.shared.unread_formats import unread
from tasks.data.formats.table.columns import IMAGE_COLUMNS, LABEL_COLUMNS, one_hot_columns, usual
from tasks.data.formats.table.rows import SUFFIXES, OpenTable, open_table, refuse_images_as_text

if TYPE_CHECKING:
    from tasks.data.formats.table.settings import Settings

_MAX_INSPECTED = 50  # rows whose images are searched
_MAX_VALUES = 40  # of a column; one of labels has two or three
_MAX_FILES = 5


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise a table with a column of images that exist and one of labels, or nothing but one-hot labels."""
    return next((why for path, name in _tables(root, names) for why, _ in [_look(path, name, names)] if why), "")


def near_misses(root: Path, names: Sequence[str]) -> list[str]:
    """Return a line for each file that could be a table but is not one."""
    found = (_look(path, name, names) for path, name in _tables(root, names))
    return [f"{fault}" for why, fault in islice(found, _MAX_FILES) if not why and fault] + unread(root, names)


def detect_one_hot(path: Path, table: OpenTable, options: "Settings", encoding: str | None) -> list[str]:
    """Return the columns that are labels themselves if no column of labels is known; else ``[]``.

    Raises:
        UserError: Some columns are such, and others are not: it is unclear what they are.
    """
    image = options.image or next(iter([*table.images, *usual(table.columns, IMAGE_COLUMNS)]), None)
    columns = [column for column in table.columns if column not in (image, options.split)]
    if options.labels is not None or options.one_hot or usual(columns, LABEL_COLUMNS) or image is None or table.images:
        return list(options.one_hot or ())
    good, others = one_hot_columns(columns, _values(open_table(path, encoding)))
    if good and (others or len(good) < 2):
        more = f"; {', '.join(others[:8])} have other content" if others else ""
        raise UserError(
            "it is unclear which columns are labels",
            where=path,
            found=f"columns of 0 and 1: {', '.join(good[:20])}{more}",
            hint=f"--set 'ingest.table.one_hot=[{', '.join(good[:20])}]' with those that are labels",
        )
    return good


def _tables(root: Path, names: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield tables at the top level; Parquet files, which may hold images, anywhere."""
    for name in [root.name] if root.is_file() else names:
        path = root if root.is_file() else root / name
        if path.suffix.lower() in SUFFIXES and ("/" not in name or path.suffix.lower() == ".parquet"):
            yield path, name


def _look(path: Path, name: str, names: Sequence[str]) -> tuple[str, str]:
    """Return why it is a table of images, or why not."""
    try:
        table = open_table(path, ask=False)
        columns = table.columns
        if foreign_columns(columns) is not None:
            return "", ""  # reported with the conversion that its tool offers
        images = [*table.images, *usual(columns, IMAGE_COLUMNS)]
        labels = usual([column for column in columns if column not in images[:1]], LABEL_COLUMNS)
        shown = ", ".join(columns[:8])
        if not images:
            return "", f"{name} has no column of images (its columns: {shown}); ingest.table.image names it"
        if images[0] in table.images:
            lacking = f"{name} has images in its cells, but no column of labels; ingest.table.labels names it"
            return (f"{name} with images in its cells, columns {shown}", "") if labels else ("", lacking)
        if "/" in name:
            return "", ""
        missing = _missing(table, images[0], names, path)
        if missing:
            return "", f"{name} lists images that are not here, such as {missing}"
        if labels:
            return f"{name} with the columns {shown}", ""
        rest = [column for column in columns if column != images[0]]
        good, others = one_hot_columns(rest, _values(open_table(path, ask=False)))
        if len(good) > 1 and not others:
            return f"{name} with a column of 0 and 1 for each of {', '.join(good[:8])}", ""
        if good:
            return "", (
                f"{name} has {'columns' if len(good) > 1 else 'a column'} of 0 and 1 ({', '.join(good[:8])})"
                f"{', and others (' + ', '.join(others[:8]) + ')' if others else ''}; "
                "ingest.table.one_hot names those that are labels"
            )
        return "", (
            f"{name} has no column of labels (its columns: {shown}); ingest.table.labels names it, or "
            "ingest.table.one_hot columns that are labels themselves"
        )
    except UserError as error:
        return "", f"{name}: {error.what}" + (f" ({error.found})" if error.found is not None else "")


def _missing(table: OpenTable, image: str, names: Sequence[str], path: Path) -> str:
    """Return a listed name that has no file, if that holds for all of the first rows; else ""."""
    rows = list(islice(table.rows, _MAX_INSPECTED))
    for row in rows:
        refuse_images_as_text(row, image, path)
    wanted = [ListedPath(row.cells.get(image, ""), row.place) for row in rows]
    wanted = [one for one in wanted if one.listed]
    found = PathResolver(names, (), names).resolve(wanted)
    if len(names) < 2:
        return ""
    return wanted[0].listed[:200] if wanted and not any(one.file or "several" in one.detail for one in found) else ""


def _values(table: OpenTable) -> dict[str, set[str]]:
    values: dict[str, set[str]] = defaultdict(set)
    for row in table.rows:
        for column, text in row.cells.items():
            if len(values[column]) < _MAX_VALUES:
                values[column].add(text)
    return {column: values[column] for column in table.columns}
