"""Rules that derive an image's site, or its group, from where the image is stored."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from models.errors import UserError
from models.settings.section import Section
from tasks.data.text.csv_text import csv_rows
from tasks.data.text.equivalent_names import fold_parts
from tasks.data.text.read_text import normalize, read_text, valid_encoding

#: The result if a rule yields no name; images without a site are quarantined.
NO_NAME = ""
_EMPTY = frozenset({"nan", "<na>", "#n/a", "null", "nat"})
NameFunction = Callable[[str, Mapping[str, str]], str]


class NameRule(Section):
    """The rule that derives a name for an image."""

    rule: Literal["none", "folder", "pattern", "column", "table"] = Field(
        "none",
        description="none: as the format defines it; folder: a folder level; pattern: a regular expression on the "
        "path; column: a column of the format's own table; table: a CSV with path and name.",
    )
    level: int = Field(1, ge=1, description="rule folder: 1 is the first folder below ingest.path.")
    pattern: str | None = Field(
        None, description="rule pattern: its first group is the name; searched in the path relative to ingest.path."
    )
    column: str | None = Field(None, description="rule column: the column's name.")
    table: Path | None = Field(
        None, description="rule table: a CSV with columns path and name; path may be the bare file name."
    )

    encoding: str | None = Field(
        None,
        description="rule table: its encoding if not UTF-8, such as gb18030 or cp1252; null: the most plausible.",
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        return None if value is None else valid_encoding(value)

    @model_validator(mode="after")
    def _has_what_its_rule_needs(self) -> Self:
        if self.rule in ("pattern", "column", "table") and not getattr(self, self.rule):
            raise ValueError(f"the rule {self.rule} needs {self.rule}")
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groups
            except re.error as error:
                raise ValueError(f"pattern is not a valid regular expression: {error}") from error
            if groups < 1:
                raise ValueError("pattern needs a group in parentheses: what it matches is the name")
        return self


def compile_rule(rule: NameRule, where: str, default: str = NO_NAME) -> NameFunction:
    """Return the rule as a function of (path relative to the root, the image's row in a table) -> name.

    Args:
        rule: The settings.
        where: The settings' key, for messages.
        default: The result of the rule ``none``.

    Raises:
        UserError: The table of the rule ``table`` cannot be read. The function itself raises if a row lacks
            the column of the rule ``column``.
    """
    if rule.rule == "folder":
        return lambda path, _: _folder(path, rule.level)
    if rule.rule == "pattern":
        assert rule.pattern is not None
        compiled = re.compile(rule.pattern)
        return lambda path, _: _matched(compiled, path)
    if rule.rule == "column":
        assert rule.column is not None
        column = rule.column
        return lambda path, fields: _field(column, path, fields, f"{where}.column")
    if rule.rule == "table":
        assert rule.table is not None
        table = _Table(_table(rule.table.expanduser(), where, rule.encoding))
        return lambda path, _: table.name_of(path)
    return lambda _path, _fields: default


def _folder(path: str, level: int) -> str:
    folders = PurePosixPath(path).parts[:-1]
    return normalize(folders[level - 1]) if len(folders) >= level else NO_NAME


def _matched(compiled: re.Pattern[str], path: str) -> str:
    found = compiled.search(path)
    return normalize(found.group(1) or "") if found else NO_NAME


def _field(column: str, path: str, fields: Mapping[str, str], where: str) -> str:
    if column not in fields:
        found = ", ".join(fields) or "this format has no table"
        raise UserError("no such column", where=where, expected=column, found=f"{found} (at {path})")
    return _named(fields[column])


class _Table:
    """Names by path or file name, exact or equivalent."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._near: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for path, name in names.items():
            parts = fold_parts(path)
            self._near[parts[-1]].append((parts, name))

    def name_of(self, path: str) -> str:
        """Return the name of a file; of an equivalent path if all such entries agree."""
        path = normalize(path)
        found = self._names.get(path) or self._names.get(PurePosixPath(path).name)
        if found is None:
            parts = fold_parts(path)
            some = [(one, name) for one, name in self._near.get(parts[-1], ()) if _one_ends_with_other(one, parts)]
            found = some[0][1] if len({name for _, name in some}) == 1 else NO_NAME
        return found


def _one_ends_with_other(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    length = min(len(one), len(other))
    return one[-length:] == other[-length:]


def _table(path: Path, where: str, encoding: str | None) -> dict[str, str]:
    """Read the names of the rule's CSV, by path."""
    rows = csv_rows(read_text(path, f"{where}.table", encoding, f"{where}.encoding"), path)
    head = [cell.casefold() for cell in rows[0][1]] if rows else []
    if "path" not in head or "name" not in head:
        raise UserError("the table lacks a column", where=path, expected="columns path, name", found=", ".join(head))
    key, value = head.index("path"), head.index("name")
    names: dict[str, str] = {}
    for number, row in rows[1:]:
        if len(row) <= max(key, value):
            raise UserError("a row is too short", where=f"{path}, line {number}", found=",".join(row))
        name = names.setdefault(row[key].replace("\\", "/"), _named(row[value]))
        if name != _named(row[value]):
            raise UserError("a path appears twice with different names", where=f"{path}, line {number}", found=row[key])
    return names


def _named(cell: str) -> str:
    """Return a cell's name; what a program writes for an empty cell names nothing."""
    return NO_NAME if cell.strip().casefold() in _EMPTY else normalize(cell)
