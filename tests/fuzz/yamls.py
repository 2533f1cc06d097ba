"""YAML as params.yaml, presets, --set, YOLO's data.yaml, lists of classes and aliases."""

import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from flows.settings.files import load_settings, presets
from flows.settings.params_file import write_settings
from flows.settings.schema import Settings
from models.errors import UserError
from tasks.core.yaml_text import dump_yaml
from tasks.data.formats.shared.tree import Entry
from tasks.data.formats.yolo.names import find_names
from tasks.data.ingest.label_files import read_aliases, read_classes

from .frame import Case, case_rng

SHORT = 60
_VALUES = (
    "yes",
    "off",
    "null",
    "~",
    "007",
    "1.0",
    "1e3",
    "1_000",
    "0x1F",
    "12:30:45",
    "2024-01-01",
    "2024-02-30",
    ".nan",
)
_VALUES += (
    "-.inf",
    "[]",
    "{}",
    "[yes, no]",
    "{1: 2}",
    "{[1]: 2}",
    "'",
    '"',
    "*x",
    "&a [*a]",
    "!!python/object:os.x {}",
)
_VALUES += (
    "!!binary aGk=",
    "!!set {a}",
    "!!omap [a: 1]",
    "!!pairs [a: 1]",
    "!!int x",
    "!!float x",
    "!!timestamp x",
    "<<",
)
_VALUES += (
    "!!map [a]",
    "!!seq {a: 1}",
    "!!bool 3",
    "!x y",
    "? a",
    "- a",
    "|",
    ">",
    "%YAML 9.9",
    "---",
    "...",
    "@",
    "`",
    "\t",
)
_VALUES += (
    "9" * 5000,
    "1e999",
    "[" * 200,
    "{a: " * 100,
    "\u202e",
    "\ud7ff",
    "\0",
    "\x85",
    "ﬁ",
    "é",
    "#",
    "a: b: c",
    "--- a\n--- b",
)
_KEYS = (
    "names",
    "nc",
    "path",
    "train",
    "val",
    "0",
    "1",
    "crack",
    "classes",
    "seed",
    "ingest",
    "<<",
    "null",
    "1.5",
    "[a]",
)


def cases(seed: int) -> Iterator[Case]:
    """Yield sound files of one of the uses with changed lines and values, without end."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        use = rng.choice(sorted(_USES))
        data = rng.choice(_sound(use)).encode(
            rng.choice(("utf-8",) * 6 + ("utf-8-sig", "utf-16", "gb18030", "cp1252")), "replace"
        )
        for _ in range(rng.choice((1, 1, 2, 3))):
            data = rng.choice(_DAMAGE)(data, rng)
        yield Case(use, data)
        number += 1


def try_one(case: Case) -> str:
    """Read it with the product: a damaged file is read or refused, and never changes other settings."""
    path = Path(_folder().name) / ("data.yaml" if case.name != "set" else "set.txt")
    path.write_bytes(case.data)
    try:
        return _USES[case.name](path)
    except UserError as error:
        assert len(str(error)) < 12_000, f"a message of {len(str(error))} letters"
        return "refused"
    finally:
        path.unlink(missing_ok=True)


def _params(path: Path) -> str:
    settings = load_settings(path)
    assert isinstance(settings, Settings)
    write_settings(path, settings)
    return "read"


def _preset(path: Path) -> str:
    load_settings(None, ["demo", str(path)])
    return "read"


def _set(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", "replace")
    load_settings(None, ["demo"], [line for line in text.split("\n") if line][:3])
    return "read"


def _yolo(path: Path) -> str:
    files, _ = find_names(path.parent, [Entry(path, "data.yaml", "all")], None)
    assert all(isinstance(name, str) and name for file in files for name in file.by_index.values())
    return "read"


def _classes(path: Path) -> str:
    assert all(isinstance(name, str) and name for name in read_classes(path, "--classes"))
    return "read"


def _aliases(path: Path) -> str:
    read_aliases(path, "--aliases")
    return "read"


_USES: dict[str, Callable[[Path], str]] = {
    "params": _params,
    "preset": _preset,
    "set": _set,
    "yolo": _yolo,
    "classes": _classes,
    "aliases": _aliases,
}


@cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="fuzz-yaml-")


@cache
def _sound(use: str) -> tuple[str, ...]:
    if use == "params":
        demo = load_settings(None, ["demo"]).model_dump(mode="json")
        short = {key: demo[key] for key in ("seed", "ingest", "partition", "federation")}
        return tuple(dump_yaml(some) for some in (short, {"ingest": demo["ingest"]}))
    if use == "preset":
        folder = resources.files("flows.settings") / "presets"
        return tuple((folder / f"{name}.yaml").read_text(encoding="utf-8") for name in presets())
    if use == "set":
        return ("ingest.classes=[crack, oil]\ntrain.lr=0.01", "ingest.label_aliases={a: b}", "seed=7\nmodel.name=ctran")
    if use == "yolo":
        return (
            "path: ../set\ntrain: images/train\nnc: 2\nnames: [crack, Ölspur]\n",
            "names:\n  0: crack\n  1: 绝缘子\n",
        )
    if use == "classes":
        return ("[crack, oil, Türgriff]\n", "names:\n- crack\n- oil\n", "classes: {0: crack, 1: oil}\n")
    return ("cracck: crack\noli: oil\n", '{"a": "b", "c": "d"}')


def _value(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    sign = b"=" if b"=" in lines[at] else b":"
    key, _, _ = lines[at].partition(sign)
    value = rng.choice(_VALUES).encode("utf-8", "replace")
    lines[at] = key + sign + (b"" if sign == b"=" else b" ") + value
    return b"\n".join(lines)


def _key(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    indent = b" " * rng.choice((0, 0, 2, 4))
    lines.insert(at, indent + rng.choice(_KEYS).encode() + b": " + rng.choice(_VALUES).encode("utf-8", "replace"))
    return b"\n".join(lines)


def _line(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join(
        rng.choice(
            (lines[:at] + lines[at + 1 :], lines[: at + 1] * 2, [*lines[:at], b"  " + lines[at], *lines[at + 1 :]])
        )
    )


def _bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 8))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((*b":-[]{}'\"#&*!|>%@\t\n\0", rng.randrange(256)))
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


_DAMAGE = (_value, _value, _key, _line, _bytes, _cut)
