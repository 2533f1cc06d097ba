"""Manifest rows of a tree read by one format; real data sets, if they are available."""

import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.data.decoding.parallel import Decoding
from tasks.data.ingest.reading import collect, open_source
from tasks.data.ingest.settings import IngestSettings

PACKS = Path(__file__).parents[3] / "shared" / "realdata"


def settings_of(source, path, site=None, **options):
    return IngestSettings.model_validate({"source": source, "path": path, "site": site or {}, source: options})


def classes_of(source, path, site=None, **options):
    return open_source(settings_of(source, path, site, **options)).classes


def rows_of(source, path, site=None, root=None, missing=(), **options):
    """Return path -> row; check that every file below ``root`` and every name of ``missing`` has exactly one."""
    settings = settings_of(source, path, site, **options)
    collector = collect(open_source(settings), settings, 0, Decoding(32, settings.limits))
    collector.select_images()
    files = [file.relative_to(root or path).as_posix() for file in (root or path).rglob("*") if file.is_file()]
    paths = sorted(row["path"] for row in collector.rows)
    assert paths == sorted([*files, *missing])
    return {row["path"]: SimpleNamespace(**row) for row in collector.rows}


def reasons(rows):
    return {path: (row.status, row.reason) for path, row in rows.items()}


def unpacked(pack, folder):
    """Unpack a real data set into ``folder``; return its root."""
    archive = PACKS / f"{pack}.tar.xz"
    if not archive.is_file():
        pytest.skip(f"{archive} is not available")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / pack


def raw_rows(source, root):
    """Yield the reader's samples, images undecoded, annotations included."""
    settings = settings_of(source, root)
    for sample in open_source(settings).read(settings, 0):
        yield from (sample, *sample.sidecars)
