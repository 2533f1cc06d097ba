"""Parquet tables: read with the texts of ``json_files`` for what is wrong."""

from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.core.json_files import damaged


def read_table(path: Path, columns: tuple[str, ...], hint: str) -> dict[str, list[Any]]:
    """Read columns of a Parquet file as lists.

    Raises:
        UserError: It is missing, damaged or lacks a column.
    """
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    if not path.is_file():
        raise UserError("a file of the data is missing", where=path, hint=hint)
    try:
        table = pq.read_table(path, columns=list(columns))
    except (OSError, ArrowException) as error:
        raise damaged(path, error, hint) from error
    missing = set(columns) - set(table.column_names)
    if missing:
        raise damaged(path, f"no column {', '.join(sorted(missing))}", hint)
    return table.to_pydict()
