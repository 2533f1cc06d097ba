"""Files that may hold labels but are of a kind that is not read, each with what to do about it."""

import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from tasks.data.formats.shared.foreign_formats import foreign_json
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.text.read_text import TextError, decode_text

_SHEET = "is a spreadsheet, which is not read: save its sheet as CSV (UTF-8)"
_PACKED = "is an archive: unpack it"
_BINARY = "is a binary data file, which is not read: convert it to CSV or Parquet"
_KINDS = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"), _SHEET),
    **dict.fromkeys((".zip", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar", ".tgz"), _PACKED),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".avro", ".pkl", ".pickle", ".mat", ".rds", ".sav"), _BINARY),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".mdb", ".accdb", ".arff", ".tfrecord", ".dta"), _BINARY),
}
_TEXTS = (".txt", ".lst", ".list", ".dat", ".tab")
_MAX_BYTES = 16 * 2**20  # bytes of a text file that is inspected
_LINES_CHECKED = 3
_MAX_REPORTED = 4
_IMAGE = re.compile("(" + "|".join(map(re.escape, sorted(SUFFIXES))) + r")(?![\w.])", re.IGNORECASE)


def unread(root: Path, names: Sequence[str]) -> list[str]:
    """Return a line for each file at the top level that may hold labels and is not read.

    Args:
        root: The folder.
        names: Its files, relative.
    """
    top = [name for name in names if "/" not in name]
    folder = root if root.is_dir() else root.parent
    below = [name for name in names if "/" in name and name.lower().endswith((".csv", ".tsv"))]
    found = [f"{name} {why}" for name in top if (why := _why_not(folder / name, name))]
    found += [
        f"{name} is a table in a subfolder: give that folder as PATH, or set ingest.table.file to it" for name in below
    ]
    return found[:_MAX_REPORTED]


def _why_not(path: Path, name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _KINDS:
        return _KINDS[suffix]
    if suffix not in (*_TEXTS, ".json"):
        return ""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return ""
        text, _ = decode_text(path.read_bytes(), ask=False)
    except (OSError, TextError):
        return ""
    return _json(text) if suffix == ".json" else _text(text)


def _text(text: str) -> str:
    lines = [line.strip() for line in islice(text.splitlines(), _LINES_CHECKED + 1) if line.strip()][-_LINES_CHECKED:]
    named = [line for line in lines if _IMAGE.search(line) and not _IMAGE.sub("", line).endswith(("/", "\\"))]
    naming = [line for line in named if len(re.split(r"[\s,;|]+", line)) > 1]
    if not naming or 2 * len(naming) < len(lines):
        return ""
    return (
        "lists images with values; to read it as a table, rename it to .csv and add a header line such as image,label"
    )


def _json(text: str) -> str:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"is not valid JSON ({str(error)[:80]})"
    if foreign_json(data) is not None:
        return ""  # reported with the conversion that its tool offers
    first = next(iter(data), None) if isinstance(data, list | dict) else None
    if isinstance(data, list) and isinstance(first, dict):
        if {"image_id", "category_id"} <= set(first):
            return 'holds only annotations; a COCO JSON also has "images" and "categories"'
        if any(isinstance(value, str) and _IMAGE.search(value) for value in first.values()):
            return 'is a list of records, which is not read: pandas.read_json(FILE).to_csv("labels.csv", index=False)'
    if isinstance(data, dict) and isinstance(first, str) and _IMAGE.search(first):
        return "maps images to values, which is not read: convert it to a CSV with the columns image,label"
    return ""
