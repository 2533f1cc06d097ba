"""The rows of a table file: CSV in any usual encoding and delimiter, or Parquet; every row as column -> text."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.text.csv_text import dialect, stream
from tasks.data.text.read_text import Encodings, TextError, decode_text, normalize

SUFFIXES = (".csv", ".tsv", ".parquet")
_BATCH, _IMAGE_BATCH = 4096, 16
_MAX_NAME = 1000  # characters; paths of systems end before 4096, names of files at 255
_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]+$")
_NUMBERS = re.compile(r"[\[(\s]*-?\d[\d.e+-]*\s*[,;]")
_PACKED = {
    b"PK\x03\x04": "an Excel workbook or a ZIP",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\x1f\x8b": "packed (gzip)",
}
_IMAGE = re.compile(r"\.(jpe?g|png|bmp|tiff?|webp|gif)$", re.IGNORECASE)


@dataclass(frozen=True)
class TableRow:
    """One row.

    Attributes:
        place: ``line 7`` or ``row 7``, for messages.
        cells: Column -> text, blanks around it removed; "" for an empty cell.
        lists: Columns whose cells are lists (Parquet), with their items.
        fault: What is wrong with the row as a whole, "" when nothing is.
        images: Columns whose cells are bytes (Parquet), with them.
        unnamed: Columns of numbered classes (Parquet) whose number has no name, with it.
    """

    place: str
    cells: dict[str, str]
    lists: dict[str, list[str]] = field(default_factory=dict)
    fault: str = ""
    images: Mapping[str, bytes] = field(default_factory=dict)
    unnamed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenTable:
    """An opened table.

    Attributes:
        columns: Its columns.
        rows: Its rows, read one after another.
        encoding: The encoding if that needed a repair, else "".
        images: Columns of bytes, as data sets on hubs hold their images.
        names: Columns of numbers whose names the file gives, with these.
    """

    columns: list[str]
    rows: Iterator[TableRow]
    encoding: str = ""
    images: tuple[str, ...] = ()
    names: Mapping[str, list[str]] = field(default_factory=dict)


def open_table(path: Path, encoding: str | None = None, ask: bool = True) -> OpenTable:
    """Open a table and read its header.

    Args:
        path: The file.
        encoding: The encoding of a CSV that is not UTF-8, if the user sets it.
        ask: Whether an unclear encoding is a question to the user.

    Raises:
        UserError: It cannot be read, has no header, or a column appears twice. Iterating over the rows raises if the
            rest of the file is unreadable, as after an unclosed quote.
    """
    return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, encoding, ask)


def _csv(path: Path, encoding: str | None, ask: bool) -> OpenTable:
    try:
        data = path.read_bytes()
        packed = next((kind for mark, kind in _PACKED.items() if data.startswith(mark)), None)
        if packed is not None:
            raise UserError(
                "the table is not a text file", where=path, found=packed, hint="save its sheet as CSV (UTF-8)"
            )
        text, repaired = decode_text(data, path, Encodings(encoding), ask)
    except (OSError, TextError) as error:
        raise UserError("cannot read the table", where=path, found=error) from error
    if "\0" in text:
        raise UserError("the table holds NUL bytes, so it is not a CSV file", where=path)
    delimiter, skipped = dialect(text)
    reader = csv.reader(stream(text, skipped), delimiter=delimiter, strict=True)
    columns = _columns(next(_guarded(reader, path, skipped), []), path)
    return OpenTable(columns, _csv_rows(reader, columns, path, skipped), repaired)


def _csv_rows(reader: Any, columns: Sequence[str], path: Path, skipped: int) -> Iterator[TableRow]:
    for cells in _guarded(reader, path, skipped):
        if not any(cell.strip() for cell in cells):
            continue
        wrong = len(cells) != len(columns)
        line = reader.line_num + skipped
        fault = f"{len(cells)} cells in line {line}, {len(columns)} columns" if wrong else ""
        texts = dict(zip(columns, map(normalize, cells), strict=False))
        yield TableRow(f"line {line}", texts, fault=fault)


def _guarded(reader: Any, path: Path, skipped: int) -> Iterator[list[str]]:
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            where = f"{path}, line {reader.line_num + skipped}"
            raise UserError("the table is not a valid CSV file", where=where, found=error) from error


def _parquet(path: Path) -> OpenTable:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
    except (OSError, ArrowException, ValueError) as error:
        raise UserError("cannot read the table", where=path, found=error) from error
    columns = _columns(schema.names, path)
    # Data sets on hubs store an image as a struct of bytes and path.
    bytes_of = {"bytes", "path"}
    images = tuple(
        name
        for name, kind in zip(columns, schema.types, strict=True)
        if pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or (pa.types.is_struct(kind) and "bytes" in {f.name for f in kind} <= bytes_of)
    )
    names = _class_names(schema.metadata or {}, schema.names, columns)
    return OpenTable(columns, _parquet_rows(file, path, columns, images, names), "", images, names)


def _class_names(metadata: Mapping[bytes, bytes], raw: Sequence[str], columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the class names that the library ``datasets`` writes into a Parquet file."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        found = {column: _names_in(features.get(name)) for name, column in zip(raw, columns, strict=True)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {column: [normalize(name) for name in names] for column, names in found.items() if names}


def _names_in(feature: Any) -> list[str]:
    while isinstance(feature, dict) and "names" not in feature and "feature" in feature:
        feature = feature["feature"]  # a list of classes
    feature = feature[0] if isinstance(feature, list) and feature else feature
    names = feature.get("names") if isinstance(feature, dict) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _parquet_rows(
    file: Any, path: Path, columns: Sequence[str], images: Sequence[str], names: Mapping[str, list[str]]
) -> Iterator[TableRow]:
    from pyarrow.lib import ArrowException

    number = 0
    try:
        for batch in file.iter_batches(_IMAGE_BATCH if images else _BATCH):
            for values in batch.to_pylist():
                number += 1
                yield _parquet_row(f"row {number}", dict(zip(columns, values.values(), strict=True)), images, names)
    except (OSError, ArrowException, ValueError, OverflowError) as error:
        raise UserError("the table is damaged", where=f"{path}, after row {number}", found=error) from error


def _parquet_row(place: str, values: dict[str, Any], images: Sequence[str], names: Mapping[str, list[str]]) -> TableRow:
    cells: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    found: dict[str, bytes] = {}
    for name, value in values.items():
        if name in images:
            data = value.get("bytes") if isinstance(value, dict) else value
            if isinstance(data, bytes):
                found[name] = data
            cells[name] = _text(value.get("path")) if isinstance(value, dict) else ""
        elif isinstance(value, list):
            lists[name] = [_text(item, names.get(name)) for item in value]
            cells[name] = ";".join(lists[name])
        else:
            cells[name] = _text(value, names.get(name))
    unnamed = {
        name: number for name in names for number in _numbers(values[name]) if not 0 <= number < len(names[name])
    }
    return TableRow(place, cells, lists, images=found, unnamed=unnamed)


def _numbers(value: Any) -> list[int]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]


def refuse_images_as_text(row: TableRow, column: str, path: Path) -> None:
    """Refuse a table whose column of images holds no names but images: base64, or lists of numbers.

    Raises:
        UserError: The row's cell is such.
    """
    text = row.cells.get(column, "")
    numbers = column in row.lists and bool(_NUMBERS.match(text))
    base64 = text.startswith("data:image/") or (len(text) > _MAX_NAME and bool(_BASE64.match(text)))
    if numbers or base64:
        raise UserError(
            f"the column {column} holds the images themselves as {'lists of numbers' if numbers else 'base64 text'}",
            where=f"{path}, {row.place}",
            expected="names of image files, or a Parquet column of bytes (PNG or JPEG)",
            found=f"{text[:40]} ... ({len(text)} characters)",
            hint="write each image to a file and its name into the table",
        )
    if len(text) > _MAX_NAME:
        raise UserError(
            f"a cell of the column {column} is too long for the name of an image",
            where=f"{path}, {row.place}",
            found=f"{text[:40]!r} ... ({len(text)} characters)",
            hint="set ingest.table.image to the column that names the images",
        )


def _text(value: Any, names: Sequence[str] | None = None) -> str:
    if value is None or value != value:  # NaN, as pandas writes an empty cell
        return ""
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if names and isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else ""  # -1: not known
    whole = isinstance(value, float) and value.is_integer()
    return normalize(str(int(value) if whole or isinstance(value, bool) else value))


def _columns(names: Sequence[str], path: Path) -> list[str]:
    columns = [normalize(name) for name in names]
    twice = sorted({name for name in columns if name and columns.count(name) > 1})
    if not any(columns) or twice:
        found = f"{', '.join(twice)} twice" if twice else "nothing"
        raise UserError("the table has no usable header", where=path, expected="one name for each column", found=found)
    if any(_IMAGE.search(name) for name in columns):
        raise UserError(
            "the table has no header: its first line names an image",
            where=path,
            found=", ".join(columns[:6]),
            hint="add a header line such as image,label",
        )
    return columns
