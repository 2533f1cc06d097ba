"""JSON files: read with one text for what is wrong, written whole."""

import json
import math
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files import write_text
from tasks.core.record_reading import require_known

MAX_QUOTED = 300  # characters of a parser's message in an error


def to_json_values(value: Any) -> Any:
    """Return keys as texts, tuples as lists, and null for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {str(key): to_json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON that is readable and gives small diffs in git."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, hint: str | None = None, kind: type = dict, what: str = "a file of the data") -> Any:
    """Return what a JSON file holds.

    Args:
        path: The file.
        hint: What helps if it cannot be read.
        kind: What it must hold, ``dict`` or ``list``.
        what: What the file is, for messages.

    Raises:
        UserError: It is missing, damaged, not of this kind, or of a later release.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{what} is missing", where=path, hint=hint) from error
    except OSError as error:
        raise damaged(path, error, hint, what) from error
    return parse_json(content, path, hint, kind, what)


def parse_json(
    content: bytes, where: object, hint: str | None = None, kind: type = dict, what: str = "a file of the data"
) -> Any:
    """Return what the bytes of a JSON file hold; the arguments and errors are those of ``read_json``."""
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, brackets without end
        raise damaged(where, error, hint, what) from error
    if not isinstance(value, kind):
        raise damaged(where, f"a {type(value).__name__} instead of a {kind.__name__}", hint, what)
    if isinstance(value, dict):
        require_known(value, where)
    return value


def damaged(
    where: object, found: object, hint: str | None, what: str = "a file of the data", expected: object = None
) -> UserError:
    """Return the error for a file whose content is not what was written."""
    return UserError(f"{what} is damaged", where=where, expected=expected, found=str(found)[:MAX_QUOTED], hint=hint)
