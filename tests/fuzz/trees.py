"""A small folder with one damaged file, read to the end: as rows of a manifest, or refused as a whole."""

import io
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from models.errors import UserError
from tasks.data.decoding.parallel import DecodeResult
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.collector import Collector
from tasks.data.ingest.manifest import COUNTED_BAD, reason_counts, write_manifest
from tasks.data.ingest.reading import open_source, refuse_unusable
from tasks.data.ingest.settings import IngestSettings

_SIDES = (40, 30)


@cache
def scratch() -> Path:
    """Return a folder that is removed at the end of the process."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory] = []


@cache
def make_image(seed: int) -> bytes:
    """Return a sound PNG."""
    width, height = _SIDES
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def tree(kind: str, files: dict[str, bytes]) -> Path:
    """Write the kind's folder with these files; files with this content are kept."""
    root = scratch() / kind
    for name, data in files.items():
        path = root / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return root


def read_all(source: str, root: Path, own: dict[str, Any], damaged: str) -> str:
    """Read the folder and evaluate it; return a word for the outcome of the damaged file."""
    try:
        guess_format(root)
    except UserError as error:
        _sensible(error)
    settings = IngestSettings.model_validate({"source": source, "path": root, source: own})
    try:
        opened = open_source(settings)
        collector = Collector(opened.classes, {}, True, lambda _path, _fields: "")
        for number, sample in enumerate(opened.read(settings, 0)):
            collector.add(sample, _decoded(number) if sample.image is not None else None)
    except UserError as error:
        return _sensible(error)
    kept = collector.select_images()
    write_manifest(collector.rows, root.parent / f"{source}.parquet")
    assert len({row["path"] for row in collector.rows}) == len(collector.rows), "a path has two rows"
    try:
        refuse_unusable(collector, kept, settings, opened)
    except UserError as error:
        _sensible(error)
    reasons = [row["reason"] for row in collector.rows if row["path"] == damaged]
    bad = sum(count for name, count in reason_counts(collector.rows).items() if name in COUNTED_BAD)
    return ", ".join([*(reason or "ok" for reason in reasons), *(["bad rows"] if bad else [])])


def _sensible(error: UserError) -> str:
    text = str(error)
    assert len(text) < 20_000, f"a message of {len(text)} characters"
    text.encode()
    return "refused"


def _decoded(number: int) -> DecodeResult:
    width, height = _SIDES
    return DecodeResult(
        "ok", width=width, height=height, sha256=f"{number:064x}", pixels=f"{number}", chunk="x", row=number
    )
