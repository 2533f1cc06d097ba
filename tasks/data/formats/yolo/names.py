"""The names of YOLO's class indices, and the splits that the YAML names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from models.errors import UserError
from tasks.core.yaml_text import YamlTextError, parse_yaml, parse_yaml_as_text
from tasks.core.yaml_words import quotes_hint
from tasks.data.formats.shared.tree import Entry
from tasks.data.text.read_text import Encodings, TextError, decode_text, normalize

_YAML = (".yaml", ".yml")
_LISTS = frozenset({"classes.txt", "names.txt", "_darknet.labels"})
_LIST_SUFFIX = ".names"
_MAY_NAME = re.compile(r"(class|label|name|categor).*\.(txt|json|csv|pbtxt|data|lst)$")
_NUMBERED = re.compile(r"(\d{1,4})(?:\s*[:=.),;]\s*|\s+)[^\W\d].*")
_LINE_END = re.compile(r"\r\n|\n|\r")  # no others: a name may hold Unicode's other line separators
_SPLIT_KEYS = ("train", "val", "valid", "validation", "test")


@dataclass(frozen=True)
class NamesFile:
    """A file that names the class indices.

    Attributes:
        name: Relative name, or the whole path of a file outside the tree.
        by_index: Class index -> name; indices may be missing.
        splits: Key such as ``train`` -> the folders or lists that the YAML names for it, as written.
        base: The YAML's ``path``, to which those are relative; "" without one.
        note: An irregularity, "" without one.
        encoding: The encoding it was decoded with, when that needed a repair, else "".
    """

    name: str
    by_index: Mapping[int, str]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    base: str = ""
    note: str = ""
    encoding: str = ""


class _BadFileError(Exception):
    """A file that cannot be read or parsed."""


def find_names(
    root: Path, entries: Sequence[Entry], given: Path | None, encodings: Encodings | None = None
) -> tuple[list[NamesFile], dict[str, str]]:
    """Read the names file that is given, or all that are in the tree.

    Returns:
        The files, at least one; and the broken ones (name -> fault).

    Raises:
        UserError: There is none, or one has a wrong form.
    """
    if given is not None:
        path = given.expanduser()
        inside = {entry.path.resolve(): entry.name for entry in entries if entry.path.name == path.name}
        try:
            found = _read(path, inside.get(path.resolve(), str(path)), encodings)
        except _BadFileError as error:
            raise UserError("cannot read the names", where=f"ingest.yolo.names: {path}", found=error) from error
        if found is None:
            raise UserError("the YAML has no names", where=f"ingest.yolo.names: {path}", expected="names: [crack, oil]")
        return [found], {}
    files: list[NamesFile] = []
    broken: dict[str, str] = {}
    for entry in entries:
        name = PurePosixPath(entry.name).name.lower()
        if not (name.endswith((*_YAML, _LIST_SUFFIX)) or name in _LISTS):
            continue
        try:
            found = _read(entry.path, entry.name, encodings)
        except _BadFileError as error:
            broken[entry.name] = str(error)
            continue
        if found is not None:
            files.append(found)
    if not files:
        raise UserError(
            "nothing names the class indices, and their order differs between copies of one data set",
            where=root,
            expected="a YAML such as data.yaml with names, or obj.names or classes.txt with one name per line",
            found="; ".join([*(f"{name}: {fault}" for name, fault in broken.items()), *_nearly(entries)]) or None,
            hint="set ingest.yolo.names to the file that these labels were made with",
        )
    return files, broken


def _nearly(entries: Sequence[Entry]) -> list[str]:
    """Return files that may hold the names, such as labelImg's list of predefined classes."""
    names = [entry.name for entry in entries if _MAY_NAME.search(PurePosixPath(entry.name).name.lower())]
    return [f"{name}, which may hold the names" for name in names[:3]]


def _read(path: Path, name: str, encodings: Encodings | None) -> NamesFile | None:
    """Return the names in a file, ``None`` for a YAML about something else.

    Raises:
        _BadFileError: It cannot be read or parsed.
        UserError: Its names are of a wrong kind.
    """
    try:
        data = path.read_bytes()
        yaml_of_another = path.suffix.lower() in _YAML and b"names" not in data.replace(b"\0", b"")
        text, encoding = decode_text(data, path, encodings, ask=not yaml_of_another)
    except (OSError, TextError) as error:
        raise _BadFileError(str(error)) from error
    if path.suffix.lower() not in _YAML:
        # A blank line counts, as it does for the programs that wrote the labels.
        lines = {index: normalize(line) for index, line in enumerate(_LINE_END.split(text))}
        _refuse_numbered(list(filter(None, lines.values())), name)
        return NamesFile(
            name, _checked({index: line for index, line in lines.items() if line}, name), encoding=encoding
        )
    content = _yaml(text)
    if not isinstance(content, dict) or "names" not in content:
        return None
    by_index = _checked(dict(_pairs(content["names"], _as_written(text), name)), name)
    count = content.get("nc")
    note = f"nc is {count}, but it names {len(by_index)}" if count not in (None, len(by_index)) else ""
    splits = {key: tuple(_texts(content.get(key))) for key in _SPLIT_KEYS if content.get(key)}
    base = content.get("path")
    return NamesFile(name, by_index, splits, base if isinstance(base, str) else "", note, encoding)


def _refuse_numbered(lines: Sequence[str], where: str) -> None:
    """Refuse a list whose lines are numbered: the number may be the index, and is no part of the name."""
    found = [_NUMBERED.fullmatch(line) for line in lines]
    numbers = sorted(int(match[1]) for match in found if match)
    if (
        len(lines) > 1
        and len(numbers) == len(lines)
        and numbers in (list(range(len(lines))), list(range(1, len(lines) + 1)))
    ):
        raise UserError(
            "the names are numbered",
            where=where,
            expected="one name per line, the first for index 0",
            found=", ".join(lines[:4]),
            hint="remove the numbers, or write a YAML with names: {0: crack, 1: oil} and set ingest.yolo.names to it",
        )


def _yaml(text: str) -> Any:
    try:
        return parse_yaml(text, unique_keys=False)
    except YamlTextError as error:
        raise _BadFileError(" ".join(str(error).split())[:200] or "nested without end") from error


def _as_written(text: str) -> object:
    """Return the names as text, before YAML converts them to numbers: a class 007 is not 7."""
    try:
        return parse_yaml_as_text(text)["names"]
    except (YamlTextError, KeyError, TypeError):
        return None


def _pairs(names: object, written: object, where: str) -> Iterator[tuple[int, str]]:
    items: Sequence[tuple[object, object]]
    texts = written if isinstance(written, list) else list(written.values()) if isinstance(written, dict) else []
    if isinstance(names, list):
        items = list(enumerate(names))
    elif isinstance(names, dict):
        items = list(names.items())
    else:
        raise UserError("names is neither a list nor a mapping", where=where, found=str(names)[:100])
    for number, (index, name) in enumerate(items):
        if isinstance(name, bool) or not isinstance(name, str | int | float) or not str(name).strip():
            hint = quotes_hint(name) or None
            raise UserError("a name is not text", where=f"{where}, names, index {index}", found=repr(name), hint=hint)
        if isinstance(index, bool) or not str(index).isdecimal():
            raise UserError("an index is not a whole number", where=f"{where}, names", found=f"{index!r}: {name}")
        text = texts[number] if isinstance(name, int | float) and len(texts) == len(items) else name
        yield int(str(index)), normalize(str(text))


def _checked(by_index: dict[int, str], where: str) -> dict[int, str]:
    if not by_index:
        raise UserError("the file names no class", where=where)
    return dict(sorted(by_index.items()))


def _texts(found: object) -> list[str]:
    return [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, str)]
