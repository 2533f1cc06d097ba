"""CSV as tables of labels, tables of sites, alias files and lists of classes; Parquet tables with them."""

import csv as writer
import io
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from models.errors import UserError
from tasks.data.decoding.parallel import Decoding
from tasks.data.images.decode import Limits
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.collector import Collector
from tasks.data.ingest.label_files import read_aliases, read_classes
from tasks.data.ingest.manifest import REASONS
from tasks.data.ingest.reading import collect, open_source, refuse_unusable
from tasks.data.ingest.settings import IngestSettings
from tasks.data.source.rules import NameRule, compile_rule

from .frame import Case, case_rng
from .images import plain

SHORT = 60
_LABELS = ("rust", "crack", "Ölspur", "绝缘子", "трещина", "NaN", "None", "", "['rust', 'crack']", '["oil"]', "[]")
_LABELS += ("rust;crack", "rust|crack", "['a' 'b']", "(x)", "{a,b}", "{'a': 1}", "[[1]]", "1", "1.0", "True", "yes")
_LABELS += ("[" * 300, "'" * 50, "\u202e", "a\0b", "=1+1", "x" * 400, "ﬁ", "é", "[nan, 'rust']", '{"choices": ["a"]}')
_IMAGES = (
    "a.png",
    "b.png",
    "c.png",
    "sub/d.png",
    "a",
    "A.PNG",
    r"C:\x\b.png",
    "gone.png",
    "",
    "..",
    "/",
    "a.jpg",
    "NaN",
)
_HEADS = ("image", "path", "id", "labels", "label", "class", "split", "xmin", "ymin", "xmax", "ymax", "rust", "crack")
_HEADS += ("Unnamed: 0", "", "image", "site", "name", "bbox", "Ölspur", "verified", "found", "meant")
_ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "gb18030", "cp1251", "utf-32", "cp932")


def cases(seed: int) -> Iterator[Case]:
    """Yield valid tables in some encoding and dialect, most of them then damaged, without end."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        use = rng.choice(("table", "table", "table", "sites", "aliases", "classes"))
        data = _table(rng)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            data = rng.choice(_DAMAGE)(data, rng)
        yield Case(use, data)
        number += 1


def try_one(case: Case) -> str:
    """Read it with the product; every row of a manifest has a reason of the list."""
    root = _root()
    path = root / ("t.csv" if case.name == "table" else "u.csv")
    path.write_bytes(case.data)
    try:
        return _USES[case.name](root, path)
    except UserError as error:
        shown = str(error)
        assert len(shown) < 6000, f"a message of {len(shown)} letters"
        return "refused"
    finally:
        path.unlink()


def _read_table(root: Path, path: Path) -> str:
    with suppress(UserError):
        guess_format(root)
    settings = IngestSettings.model_validate({"source": "table", "path": root, "image_size": 32, "max_bad_share": 1})
    source = open_source(settings)
    collector: Collector = collect(source, settings, 0, Decoding(32, Limits()), workers=1)
    kept = collector.select_images()
    assert all(row["reason"] in REASONS for row in collector.rows)
    assert sum(row["path"] == "t.csv" for row in collector.rows) == 1
    assert all(isinstance(label, str) and label for row in kept for label in row["labels"])
    refuse_unusable(collector, kept, settings, source)
    return "read"


def _read_sites(root: Path, path: Path) -> str:
    site_of = compile_rule(NameRule(rule="table", table=path), "ingest.site")
    return "named" if site_of("a.png", {}) else "not named"


def _read_aliases(root: Path, path: Path) -> str:
    return f"{min(len(read_aliases(path, '--aliases', classes=['rust', 'crack'])), 2)} aliases"


def _read_classes(root: Path, path: Path) -> str:
    return f"{min(len(read_classes(path, '--classes')), 2)} classes"


_USES: dict[str, Callable[[Path, Path], str]] = {
    "table": _read_table,
    "sites": _read_sites,
    "aliases": _read_aliases,
    "classes": _read_classes,
}


@cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="fuzz-csv-")


@cache
def _root() -> Path:
    root = Path(_folder().name)
    for name in ("a.png", "b.png", "c.png", "sub/d.png"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(plain("PNG") + name.encode())  # bytes after the end: other files, one image
    return root


def _table(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.5:
        heads = ["image", "labels", *rng.sample(_HEADS, rng.choice((0, 0, 1, 3)))]
    elif kind < 0.7:
        heads = ["image", *rng.sample(("rust", "crack", "oil", "verified", "split"), rng.choice((1, 2, 3)))]
    else:
        heads = [rng.choice(_HEADS) for _ in range(rng.choice((1, 2, 2, 3, 5)))]
    marks = rng.choice(
        (("0", "1"), ("1.0", "0.0"), ("", "x"), ("-1", "1"), ("True", "False"), ("0.5", "1"), ("NaN", "1"))
    )
    rows = [heads]
    for _ in range(rng.choice((0, 1, 4, 9))):
        row = [_cell(head, marks, rng) for head in heads]
        rows.append(row[: -rng.choice((1, 2))] if rng.random() < 0.03 else row)
    text = io.StringIO()
    delimiter = rng.choice((",", ",", ";", "\t", "|"))
    write = writer.writer(text, delimiter=delimiter, lineterminator=rng.choice(("\n", "\r\n", "\r")), escapechar="\\")
    for row in rows:
        try:
            write.writerow(row)
        except writer.Error:
            text.write(delimiter.join(row) + "\n")
    first = f"sep={delimiter}\n" if rng.random() < 0.1 else ""
    return (first + text.getvalue()).encode(rng.choice(_ENCODINGS), rng.choice(("replace", "ignore")))


def _cell(head: str, marks: tuple[str, ...], rng: random.Random) -> str:
    if head in ("image", "path", "id"):
        return rng.choice(_IMAGES[:4] if rng.random() < 0.8 else _IMAGES)
    if head in ("labels", "label", "class", "name", "found", "meant"):
        return rng.choice(_LABELS[:3] if rng.random() < 0.5 else _LABELS)
    if head == "split":
        return rng.choice(("train", "val", "test", "holdout", ""))
    if head.startswith(("x", "y")):
        return rng.choice(("1", "5", "9", "0.5", "-3", "nan", "inf", "", "1e400"))
    return rng.choice(marks)


def _bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 10))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((0, 10, 13, 34, 39, 44, 59, 255, rng.randrange(256)))
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _quotes(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b'"', b'""', b"'", b"\r", b"\n\n", b"\0", b"\xef\xbb\xbf", b"\\")) + data[at:]


def _twice(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at : at + rng.randrange(1, 80)] * 2 + data[at + 40 :]


def _noise(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(1, 30)) + data[at:]


def _long(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b"x", b"[", b"\xe4", b",", b'"')) * rng.choice((1000, 140_000)) + data[at:]


_DAMAGE = (_bytes, _bytes, _cut, _quotes, _quotes, _twice, _noise, _long)
