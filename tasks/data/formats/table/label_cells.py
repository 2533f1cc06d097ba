"""A cell of labels: names with a separator, a list as a program wrote it, or a text that means "empty"."""

import ast
import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from tasks.data.text.read_text import normalize

#: What programs write for an empty cell, in lower case.
NULLS = frozenset({"nan", "-nan", "none", "null", "nil", "na", "n/a", "<na>", "#n/a", "#na", "nat", "(null)", "\\n"})
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# What numpy prints: items side by side without commas.
_NUMPY = re.compile(rf"\[\s*(?:{_QUOTED})(?:\s+(?:{_QUOTED}))+\s*\]", re.DOTALL)
_BARE = re.compile(r"[^\[\]{}()'\":]*")
_ARRAY = re.compile(r"^array\((\[.*?\])(?:,\s*dtype=[^\]]*)?\)$", re.DOTALL)
_MAX_LENGTH = 100_000  # characters of a list


@dataclass(frozen=True)
class Cell:
    """The labels of one cell.

    Attributes:
        labels: The labels, ``()`` for an empty list; ``None`` if the cell is empty or unknown.
        listed: Whether it was a list written by a program.
        note: Why it is unknown, if it is not simply empty.
        fault: Why it cannot be read, else "".
    """

    labels: tuple[str, ...] | None
    listed: bool = False
    note: str = ""
    fault: str = ""


def read_cell(text: str, separator: str, declared: Collection[str] = ()) -> Cell:
    """Read a cell of labels; nothing in it is ever executed.

    Args:
        text: The cell.
        separator: Between the labels of a cell that is no list.
        declared: Declared labels: a cell that equals one is that label, whatever its form.
    """
    text = normalize(text)
    if text in declared:
        return Cell((text,))
    if text.casefold() in NULLS:
        return Cell(None, note=f"{text!r} is not read as a label; to use it as one, declare it in ingest.classes")
    text = _ARRAY.sub(r"\1", text)
    if text[:1] in _BRACKETS and text[-1:] == _BRACKETS[text[:1]] and len(text) <= _MAX_LENGTH:
        found = _items(text)
        if isinstance(found, str):
            return Cell(None, fault=found)
        if found is not None:
            return _of_items(found, declared)
    elif re.match(r"[\[({]\s*['\"]", text):
        return Cell(None, fault=f"an unterminated list: {text[:60]}")
    names = map(normalize, text.split(separator))
    labels = tuple(dict.fromkeys(name for name in names if name and (name in declared or name.casefold() not in NULLS)))
    return Cell(labels or None)


def _of_items(items: list[object], declared: Collection[str]) -> Cell:
    """Return a list's labels: an empty list means no label, one of nothing but NaN means unknown."""
    names = [normalize(item if isinstance(item, str) else _written(item)) for item in items]
    labels = [name for name in names if name in declared or (name and name.casefold() not in NULLS)]
    if items and not labels:
        return Cell(None, True, "a list of nothing but empty values")
    return Cell(tuple(dict.fromkeys(labels)), True)


def _written(item: object) -> str:
    return "" if item is None or item != item else str(int(item) if isinstance(item, float) else item)


def _items(text: str) -> list[object] | str | None:
    """Return the items of a written list, a fault as text, or ``None`` for bracketed text that is no list."""
    found: object = _NOTHING
    if _NUMPY.fullmatch(text):  # for Python, strings side by side are one string
        found = [ast.literal_eval(part) for part in re.findall(_QUOTED, text)]
    for parse in (json.loads, ast.literal_eval) if found is _NOTHING else ():
        try:
            found = parse(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        break
    if isinstance(found, dict):
        return _of_mapping(found)
    if isinstance(found, list | tuple | set):
        items = sorted(found, key=str) if isinstance(found, set) else list(found)
        if all(_is_plain(item) for item in items):
            return items
        return f"a list that holds other values than names: {text[:60]}"
    if text[0] in "[{" and _BARE.fullmatch(text[1:-1]):  # [a, b] as YAML, {a,b} as PostgreSQL
        return [part.strip() for part in text[1:-1].split(",") if part.strip()]
    bare = _postgres(text)
    if bare is None and text[0] in "[{":
        return f"a list that cannot be read: {text[:60]}"
    return bare


def _postgres(text: str) -> list[object] | None:
    """Read ``{a,"b c"}``: PostgreSQL quotes only where it must."""
    inner = text[1:-1]
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,"{}\[\]\']+)', inner)
    rest = re.sub(r'"(?:[^"\\]|\\.)*"|[^,"{}\[\]\']+', "", inner)
    if text[0] != "{" or set(rest) - {","}:
        return None
    return [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare.strip() for quoted, bare in parts]


def _of_mapping(found: dict[object, object]) -> list[object] | str:
    """Read ``{"rust": 1, "oil": 0}`` as its ones, ``{"choices": [...]}`` as its list."""
    values = list(found.values())
    if len(values) == 1 and isinstance(values[0], list) and all(map(_is_plain, values[0])):
        return values[0]
    if not found:
        return []
    if all(isinstance(value, bool) or value in (0, 1) for value in values):
        return [key for key, value in found.items() if value]
    return f"a mapping that does not select labels: {str(found)[:60]}"


def _is_plain(item: object) -> bool:
    return item is None or (isinstance(item, str | int | float) and not isinstance(item, bool) and _finite(item))


def _finite(item: str | int | float) -> bool:
    return not isinstance(item, float) or item != item or abs(item) < 1e15


_NOTHING = object()
