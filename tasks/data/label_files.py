"""Label lists and alias tables in files of their own, for the command line; settings hold them in the end."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.text import normal, read_text

_STRUCTURED = frozenset({".json", ".yaml", ".yml"})
_KEYS = ("names", "classes")


def read_classes(path: Path, where: str, encoding: str | None = None) -> list[str]:
    """The labels in their order.

    A JSON or YAML file holds a list, a mapping of indices 0, 1, ... to labels, or one of these under ``names`` or
    ``classes``. Any other file holds one label on each line; blank lines are passed over.

    Args:
        path: The file.
        where: The option's name, for messages.
        encoding: Its encoding when it is not UTF-8, if the user says so.

    Raises:
        UserError: It cannot be read or is built otherwise. Whether the labels differ is for the settings to check.
    """
    text = read_text(path, where, encoding)
    if path.suffix.lower() not in _STRUCTURED:
        return [line for line in map(normal, text.splitlines()) if line]
    found = _structured(text, path, where)
    for key in _KEYS:
        found = found[key] if isinstance(found, Mapping) and key in found else found
    if isinstance(found, Mapping) and all(str(index).isdecimal() for index in found):
        found = [found[index] for index in sorted(found, key=lambda index: int(str(index)))]
    if not isinstance(found, list):
        expected = "a list of labels, or a mapping of indices to labels, plainly or under names"
        raise UserError("the file holds no list of labels", where=f"{where}: {path}", expected=expected)
    return [_label(item, path, where) for item in found]


def read_aliases(path: Path, where: str, encoding: str | None = None) -> dict[str, str]:
    """Label as found -> declared label.

    A JSON or YAML file holds a mapping; any other file is a CSV of two columns, under the heading ``found,meant`` or
    none.

    Args:
        path: The file.
        where: The option's name, for messages.
        encoding: Its encoding when it is not UTF-8, if the user says so.

    Raises:
        UserError: It cannot be read, is built otherwise, or maps one label to two.
    """
    text = read_text(path, where, encoding)
    if path.suffix.lower() in _STRUCTURED:
        found = _structured(text, path, where)
        if not isinstance(found, Mapping):
            raise UserError("the file holds no mapping of labels", where=f"{where}: {path}", expected="{found: meant}")
        pairs = [(_label(key, path, where), _label(value, path, where)) for key, value in found.items()]
    else:
        lines = csv.reader(io.StringIO(text, newline=""))  # a label may hold a line break
        rows = [[normal(cell) for cell in row] for row in lines if any(map(str.strip, row))]
        odd = [",".join(row) for row in rows if len(row) != 2 or not all(row)]
        if odd:
            expected = "two columns: label as found, declared label"
            raise UserError("a row is no pair of labels", where=f"{where}: {path}", expected=expected, found=odd[0])
        pairs = [(row[0], row[1]) for row in rows if row != ["found", "meant"]]
    aliases: dict[str, str] = {}
    for key, value in pairs:
        if aliases.setdefault(key, value) != value:
            raise UserError(
                "one label is mapped to two", where=f"{where}: {path}", found=f"{key}: {aliases[key]} and {value}"
            )
    return aliases


def _structured(text: str, path: Path, where: str) -> Any:
    """JSON or YAML 1.2, where ``no`` is a word; a key that stands twice is refused."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise UserError("the file is no valid JSON or YAML", where=f"{where}: {path}", found=error) from error


def _label(item: object, path: Path, where: str) -> str:
    if not isinstance(item, str) or not normal(item):
        raise UserError(
            "a label is no text", where=f"{where}: {path}", found=repr(item), hint="put numbers and the like in quotes"
        )
    return normal(item)
