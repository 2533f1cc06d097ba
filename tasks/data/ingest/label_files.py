"""Label lists and alias tables in files, for the command line; in the end they become settings."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.core.yaml_words import CONSTRUCTION_FAULTS, quotes_hint
from tasks.data.text.csv_text import csv_rows
from tasks.data.text.read_text import normalize, read_text

_STRUCTURED = frozenset({".json", ".yaml", ".yml"})
# Words of a heading: for the label as found, and for the declared one.
_FOUND = frozenset(
    {"found", "alias", "aliases", "from", "old", "oldname", "oldlabel", "source", "original", "raw", "wrong", "before"}
    | {"written", "variant", "synonym", "misspelt", "misspelled", "label", "name", "key", "input", "rawlabel", "code"}
)
_MEANT = frozenset(
    {"meant", "class", "classes", "classname", "to", "new", "newname", "newlabel", "target", "label", "labels", "name"}
    | {"correct", "right", "canonical", "mapped", "mappedto", "value", "output", "after", "standard", "category"}
)
_KEYS = ("names", "classes")


def read_classes(path: Path, where: str, encoding: str | None = None) -> list[str]:
    """Read the labels in their order.

    A JSON or YAML file holds a list, a mapping of indices 0, 1, ... to labels, or one of these under ``names`` or
    ``classes``. Any other file holds one label per line; blank lines are skipped.

    Args:
        path: The file.
        where: The option, for messages.
        encoding: Its encoding if the user sets one.

    Raises:
        UserError: It cannot be read or has another form, or a label appears twice.
    """
    text = read_text(path, where, encoding)
    if path.suffix.lower() not in _STRUCTURED:
        lines = enumerate(map(normalize, re.split(r"\r\n|\r|\n", text)), 1)  # \x0b and the like do not end a line
        return _different([(line, f"line {number}") for number, line in lines if line], path, where)
    found = _structured(text, path, where)
    for key in _KEYS:
        found = found[key] if isinstance(found, Mapping) and key in found else found
    if isinstance(found, Mapping) and all(str(index).isdecimal() for index in found):
        found = [found[index] for index in sorted(found, key=lambda index: int(str(index)))]
    if not isinstance(found, list):
        expected = "a list of labels, or a mapping of indices to labels, plainly or under names"
        raise UserError("the file holds no list of labels", where=f"{where}: {path}", expected=expected)
    labels = [(_label(item, path, where, number), f"label {number}") for number, item in enumerate(found, 1)]
    return _different(labels, path, where)


def _different(labels: list[tuple[str, str]], path: Path, where: str) -> list[str]:
    """Return the labels, given with their places in the file, after checking that none appears twice."""
    first: dict[str, str] = {}
    for label, place in labels:
        if label in first:
            raise UserError(
                "a label appears twice", where=f"{where}: {path}, {place}", found=f"{label}, as {first[label]}"
            )
        first[label] = place
    return list(first)


def read_aliases(
    path: Path, where: str, encoding: str | None = None, classes: Collection[str] | None = None
) -> dict[str, str]:
    """Read label as found -> declared label.

    A JSON or YAML file holds a mapping; any other file is a CSV of two columns, under a heading such as
    ``found,meant``, ``alias,class`` or ``from,to``, or none.

    Args:
        path: The file.
        where: The option, for messages.
        encoding: Its encoding if the user sets one.
        classes: The declared labels, if they are known.

    Raises:
        UserError: It cannot be read, has another form, or maps one label to two.
    """
    text = read_text(path, where, encoding)
    if path.suffix.lower() in _STRUCTURED:
        found = _structured(text, path, where)
        if not isinstance(found, Mapping):
            raise UserError("the file holds no mapping of labels", where=f"{where}: {path}", expected="{found: meant}")
        pairs = [(_label(key, path, where), _label(value, path, where)) for key, value in found.items()]
    else:
        rows = csv_rows(text, f"{where}: {path}")
        if rows and _is_heading(rows[0][1], [row for _, row in rows[1:]], classes):
            rows = rows[1:]
        for line, row in rows:
            if len(row) != 2 or not all(row):
                place = f"{where}: {path}, line {line}"
                expected = "two columns: label as found, declared label"
                raise UserError("a row is not a pair of labels", where=place, expected=expected, found=",".join(row))
        pairs = [(row[0], row[1]) for _, row in rows]
    aliases: dict[str, str] = {}
    for key, value in pairs:
        if aliases.setdefault(key, value) != value:
            raise UserError(
                "one label is mapped to two", where=f"{where}: {path}", found=f"{key}: {aliases[key]} and {value}"
            )
    return aliases


def _is_heading(first: list[str], rows: list[list[str]], classes: Collection[str] | None) -> bool:
    """Check whether the first row is a heading: by its words, or because it points to no declared label."""
    plain = [re.sub(r"[\W_]+", "", cell.casefold()) for cell in first[:2]]
    if len(plain) == 2 and plain[0] in _FOUND and plain[1] in _MEANT and plain[0] != plain[1]:
        return True
    if classes is None or len(first) != 2 or not rows or first[1] in classes:
        return False
    return first[0] not in classes and all(len(row) == 2 and row[1] in classes for row in rows)


def _structured(text: str, path: Path, where: str) -> Any:
    """Parse JSON or YAML 1.2, where ``no`` is a word; a repeated key is refused."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, *CONSTRUCTION_FAULTS) as error:
        raise UserError("the file is not valid JSON or YAML", where=f"{where}: {path}", found=error) from error


def _label(item: object, path: Path, where: str, number: int = 0) -> str:
    if not isinstance(item, str) or not normalize(item):
        place = f"{where}: {path}" + (f", label {number}" if number else "")
        raise UserError("a label is not text", where=place, found=repr(item), hint=quotes_hint(item) or None)
    return normalize(item)
