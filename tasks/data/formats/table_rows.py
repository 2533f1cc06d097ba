"""The rows of a table file: CSV in any usual encoding and delimiter, or Parquet; every row as column -> text."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.text import Encodings, TextError, decode_text, normal

SUFFIXES = (".csv", ".tsv", ".parquet")
_DELIMITERS = ",;\t"
_BATCH = 4096


@dataclass(frozen=True)
class TableRow:
    """One row.

    Attributes:
        place: Where it stands, for messages: ``line 7`` or ``row 7``.
        cells: Column -> text, blanks around it removed; "" for an empty cell.
        lists: Columns whose cells are lists (Parquet), with their items.
        fault: What is wrong with the row as a whole, "" when nothing is.
    """

    place: str
    cells: dict[str, str]
    lists: dict[str, list[str]] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class OpenTable:
    """A table that was opened: its columns, its rows, and the encoding when that needed a repair."""

    columns: list[str]
    rows: Iterator[TableRow]
    encoding: str = ""


def open_table(path: Path, told: str | None = None, ask: bool = True) -> OpenTable:
    """Open a table and read its head.

    Args:
        path: The file.
        told: The encoding of a CSV that is not UTF-8, if the user says so.
        ask: Whether an unclear encoding is a question to the user.

    Raises:
        UserError: It cannot be read, has no head, or a column stands twice. Iterating over the rows raises for what
            makes the rest of a file unreadable, as a quote that is never closed.
    """
    return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, told, ask)


def _csv(path: Path, told: str | None, ask: bool) -> OpenTable:
    try:
        text, encoding = decode_text(path.read_bytes(), path, Encodings(told), ask)
    except (OSError, TextError) as error:
        raise UserError("cannot read the table", where=path, found=error) from error
    if "\0" in text:
        raise UserError("the table holds NUL bytes, so it is no CSV file", where=path)
    first = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns = _columns(next(_guarded(reader, path), []), path)
    return OpenTable(columns, _csv_rows(reader, columns, path), encoding)


def _csv_rows(reader: Any, columns: Sequence[str], path: Path) -> Iterator[TableRow]:
    for cells in _guarded(reader, path):
        if not any(cell.strip() for cell in cells):
            continue
        wrong = len(cells) != len(columns)
        fault = f"{len(cells)} cells in line {reader.line_num}, {len(columns)} columns" if wrong else ""
        texts = dict(zip(columns, map(normal, cells), strict=False))
        yield TableRow(f"line {reader.line_num}", texts, fault=fault)


def _guarded(reader: Any, path: Path) -> Iterator[list[str]]:
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError("the table is no CSV file", where=f"{path}, line {reader.line_num}", found=error) from error


def _parquet(path: Path) -> OpenTable:
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        file = pq.ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise UserError("cannot read the table", where=path, found=error) from error
    return OpenTable(_columns(file.schema_arrow.names, path), _parquet_rows(file, path))


def _parquet_rows(file: Any, path: Path) -> Iterator[TableRow]:
    from pyarrow.lib import ArrowException

    number = 0
    try:
        for batch in file.iter_batches(_BATCH):
            for values in batch.to_pylist():
                number += 1
                lists = {name: list(map(_text, value)) for name, value in values.items() if isinstance(value, list)}
                cells = {name: ";".join(lists[name]) if name in lists else _text(v) for name, v in values.items()}
                yield TableRow(f"row {number}", cells, lists)
    except (OSError, ArrowException) as error:
        raise UserError("the table is damaged", where=f"{path}, after row {number}", found=error) from error


def _text(value: Any) -> str:
    if value is None or value != value:  # NaN, as pandas writes an empty cell
        return ""
    whole = isinstance(value, float) and value.is_integer()
    return normal(str(int(value) if whole or isinstance(value, bool) else value))


def _columns(names: Sequence[str], path: Path) -> list[str]:
    columns = [normal(name) for name in names]
    twice = sorted({name for name in columns if name and columns.count(name) > 1})
    if not any(columns) or twice:
        found = f"{', '.join(twice)} twice" if twice else "nothing"
        raise UserError("the table has no usable head", where=path, expected="one name for each column", found=found)
    return columns
