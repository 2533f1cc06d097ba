"""Finds the file and line that name a label, for messages about it."""

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from models.errors import UserError
from tasks.core.json_files import read_json
from tasks.core.tables import read_table
from tasks.data.dataset import SAMPLES, SUMMARY
from tasks.data.formats.table.rows import open_table
from tasks.data.ingest.manifest import FILE as MANIFEST
from tasks.data.text.read_text import TextError, decode_text, normalize

_NAMING = ("metadata", "annotation", "encoding", "near_name", "odd_box")  # reasons of files that were read for labels
_MAX_FILES, _MAX_BYTES = 200, 50_000_000  # limits of the search: a message must not take minutes
_HINT = "fedscene data ingest"


def label_locations(root: Path, labels: Sequence[str]) -> list[str]:
    """Return for each label the file and line that name it, or what is known if that cannot be found.

    Args:
        root: The data set's folder.
        labels: Labels of it.

    Raises:
        UserError: The data set is damaged.
    """
    settings = read_json(root / SUMMARY, _HINT).get("settings") or {}
    samples = read_table(root / SAMPLES, ("source", "labels"), _HINT)
    images = {
        label: [s for s, own in zip(samples["source"], samples["labels"], strict=True) if label in (own or ())]
        for label in labels
    }
    return [_place(root, label, images[label], settings) for label in labels]


def _place(root: Path, label: str, images: list[str], settings: dict[str, Any]) -> str:
    if label in (settings.get("classes") or ()):
        return "ingest.classes"
    if settings.get("path") is None:
        return f"data set {root}"
    source = Path(settings["path"]).expanduser()
    folder = source if source.is_dir() else source.parent
    spellings = [label, *(found for found, meant in settings.get("label_aliases", {}).items() if meant == label)]
    for file in _files(root, folder, images[:1]):
        line = _line_of(file, spellings)
        if line:
            return f"{file}, {line}"
    if not images:
        return str(source)
    parts = PurePosixPath(images[0]).parts[:-1]
    depth = next((n for n, part in enumerate(parts, 1) if normalize(part) in spellings), None)
    named = f"folder {folder.joinpath(*parts[:depth])}" if depth else f"the annotation of {folder / images[0]}"
    more = f" (and {len(images) - 1} more images)" if len(images) > 1 and not depth else ""
    return f"{named}{more}"


def _files(root: Path, folder: Path, images: Sequence[str]) -> Iterator[Path]:
    """Yield the files that named labels when the data set was made, those of the image first."""
    rows = read_table(root / MANIFEST, ("path", "reason"), _HINT)
    names = [path for path, reason in zip(rows["path"], rows["reason"], strict=True) if reason in _NAMING]
    stems = {PurePosixPath(image).stem for image in images}
    for name in sorted(names, key=lambda name: PurePosixPath(name).stem not in stems)[:_MAX_FILES]:
        file = folder / name
        if file.is_file() and file.stat().st_size <= _MAX_BYTES:
            yield file


def _line_of(file: Path, spellings: Sequence[str]) -> str:
    """Return ``line 7`` or ``row 7`` of the first place that holds one of the spellings as a whole; else ""."""
    if file.suffix.lower() == ".parquet":
        return _row_of(file, spellings)
    try:
        text, _ = decode_text(file.read_bytes(), ask=False)
    except (OSError, TextError, UserError):
        return ""
    written = {form for name in spellings for form in (name, html.escape(name), json.dumps(name)[1:-1])}
    within = "|".join(re.escape(form) for form in sorted(written, key=len, reverse=True))
    whole = re.compile(rf"(?<![^\s,;:|\"'>\[({{=\ufeff])(?:{within})(?![^\s,;:|\"'<\])}}])")
    # As an editor counts: \x0b and the like do not end a line
    lines = (number for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1) if whole.search(line))
    number = next(lines, 0)
    return f"line {number}" if number else ""


def _row_of(file: Path, spellings: Sequence[str]) -> str:
    try:
        for row in open_table(file).rows:
            cells = [*row.cells.values(), *(item for items in row.lists.values() for item in items)]
            if any(cell in spellings for cell in cells):
                return row.place
    except UserError:
        pass
    return ""
