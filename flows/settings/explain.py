"""Describe every setting as Markdown, for ``fedscene settings --explain`` and ``docs/settings.md``."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.settings.schema import Settings


def explain() -> str:
    """Return one table per section: key, type, default, meaning."""
    parts = ["# Settings", INTRODUCTION]
    for name, field in Settings.model_fields.items():
        if _is_section(field):
            about = _first_line(field.annotation)
            parts.append(f"## {name}\n\n{about}\n\n" + _table(list(_rows(field.annotation, f"{name}."))))
        else:
            parts.append(f"## {name}\n\n" + _table([_row(name, field)]))
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """\
All settings of a run, by section of `params.yaml`. This page is the output of `fedscene settings --explain`, and a test
checks that it is up to date.

Later sources override earlier ones: the defaults below, a file (`--params`, or `params.yaml` in the current folder if
no preset is named), presets (`--preset`, repeatable), and overrides (`--set section.key=value`, repeatable). An unknown
key, a wrong type or contradicting settings end the command with exit code 2 before any work starts."""


def rows() -> list[tuple[str, str, str, str]]:
    """Return (key, type, default, meaning) of every setting."""
    out: list[tuple[str, str, str, str]] = []
    for name, field in Settings.model_fields.items():
        out += list(_rows(field.annotation, f"{name}.")) if _is_section(field) else [_row(name, field)]
    return out


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _rows(section: Any, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in section.model_fields.items():
        if _is_section(field):
            yield from _rows(field.annotation, f"{prefix}{name}.")
        else:
            yield _row(prefix + name, field)


def _row(key: str, field: FieldInfo) -> tuple[str, str, str, str]:
    default = field.get_default(call_default_factory=True, validated_data={})
    shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    shown = "[]" if default == () else shown
    return f"`{key}`", _type(field.annotation), f"`{shown}`" if shown else "", field.description or ""


def _type(annotation: Any) -> str:
    """Return the type in a user's terms."""
    if get_origin(annotation) is Literal:
        return " / ".join(str(value) for value in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) in (Union, UnionType):
        names = " / ".join(dict.fromkeys(_type(kind) for kind in kinds))
        return f"{names} or null" if type(None) in get_args(annotation) else names
    name = str(getattr(annotation, "__name__", annotation))
    return {"str": "text", "bool": "true / false", "Path": "path", "dict": "mapping", "tuple": "list"}.get(name, name)


def _first_line(section: Any) -> str:
    return str(section.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *lines])
