"""The data set on disk: pixels in one memory-mapped array, everything else in small tables beside it.

``images.npy``: uint8 [N, 3, S, S]. ``samples.parquet``: one row per image, in image order. ``classes.json``: the
labels, in their order. ``manifest.parquet``: one row per input file. ``dataset.json``: digests and counts.
"""

import hashlib
import json
import threading
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import UserError
from models.files import replacing_file, stamp
from tasks.core.json_files import damaged, read_json
from tasks.core.tables import read_table

IMAGES, SAMPLES, CLASSES, SUMMARY = "images.npy", "samples.parquet", "classes.json", "dataset.json"
SPLITS = ("train", "val", "test")
_HINT = "make the data again (fedscene data ingest; a folder under runs/data: remove it, and run again)"
_LOADING = threading.Lock()
_COLUMNS = ("sample_id", "source", "site", "split", "labels", "sha256", "group")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, opened for reading; N images of side S, C labels. The arrays are read-only and shared.

    Attributes:
        root: Its folder.
        classes: The C labels, in the order of the columns of ``targets``.
        images: uint8 [N, 3, S, S], mapped from disk.
        targets: uint8 [N, C], 1 where the image has the label.
        sites: str [N], the site of the image.
        splits: str [N], ``train``, ``val`` or ``test``.
        digest: sha256 over pixels, samples and classes.
        sample_ids: str [N], unique: the first 16 hex digits of the file's sha256.
        groups: str [N]; images with the same value (one source photograph, one burst, the same pixels) are in one
            split; "": no group.
        annotated: bool [N], false where nobody says which labels the image has; its row of ``targets`` is 0 and means
            nothing, unlike that of a negative. Such images are all in ``train``. Default: all are annotated.
    """

    root: Path
    classes: list[str]
    images: np.ndarray
    targets: np.ndarray
    sites: np.ndarray
    splits: np.ndarray
    digest: str
    sample_ids: np.ndarray = field(default_factory=lambda: np.array([], dtype=str))
    groups: np.ndarray = field(default_factory=lambda: np.array([], dtype=str))
    annotated: np.ndarray = field(default_factory=lambda: np.array([], dtype=bool))

    def __post_init__(self) -> None:
        if len(self.annotated) != len(self.targets):
            object.__setattr__(self, "annotated", np.ones(len(self.targets), dtype=bool))

    def indices(self, split: str) -> np.ndarray:
        """Return the rows of a split, int64, ascending."""
        assert split in SPLITS, split
        return np.flatnonzero(self.splits == split).astype(np.int64)

    def lazy_images(self, rows: np.ndarray) -> "LazyImages":
        """Return the images of some rows, read from disk when they are indexed."""
        return LazyImages(self.images, rows)


class LazyImages:
    """Rows of an image array, read when they are indexed: a client's images need not fit into memory.

    Args:
        images: uint8 [N, 3, S, S], mapped from disk.
        rows: int64 [n].
    """

    def __init__(self, images: np.ndarray, rows: np.ndarray) -> None:
        self.images, self.rows = images, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        """Return the images at these positions, uint8 [k, 3, S, S]."""
        picked: np.ndarray = self.images[self.rows[index]]
        return picked

    def subset(self, index: np.ndarray) -> "LazyImages":
        """Return the images at these positions, not read yet."""
        return self.of_rows(self.rows[index])

    def joined(self, others: "LazyImages") -> "LazyImages":
        """Return these images followed by others, which are changed on access as these are."""
        return self.of_rows(np.concatenate([self.rows, others.rows]))

    def of_rows(self, rows: np.ndarray) -> "LazyImages":
        """Return other rows of the same array, changed on access as these are."""
        part = copy(self)
        part.rows = rows
        return part


def load_dataset(root: Path) -> Dataset:
    """Open the data set in ``root`` and verify everything, pixels included, against the digests in ``dataset.json``.

    The result is cached while the files' sizes and times stay the same, so calling it in every task is cheap.

    Raises:
        UserError: It is missing, incomplete, changed, or its files contradict each other.
    """
    summary = read_json(Path(root) / SUMMARY, _HINT)
    for name in ("digest", "labels_digest"):
        if not isinstance(summary.get(name), str):
            raise _damaged(Path(root) / SUMMARY, f"no {name}")
    folder = Path(root).resolve()
    stamps = tuple(stamp(folder / name) for name in (IMAGES, SAMPLES, CLASSES))
    with _LOADING:  # clients that start at once must not each hash everything
        return _load(str(folder), summary["digest"], summary["labels_digest"], stamps)


@lru_cache(maxsize=8)
def _load(folder: str, digest: str, expected: str, stamps: tuple[tuple[int, ...], ...]) -> Dataset:
    root = Path(folder)
    classes = read_json(root / CLASSES, _HINT, list)
    if not classes or not all(isinstance(name, str) for name in classes) or len(set(classes)) != len(classes):
        raise _damaged(root / CLASSES, "not a list of different labels")
    table = read_table(root / SAMPLES, _COLUMNS, _HINT)
    try:
        rows = zip(*(table[name] for name in _COLUMNS), strict=True)
        lines = sample_lines(dict(zip(_COLUMNS, row, strict=True)) for row in rows)
        found = labels_digest(lines, classes)
    except (TypeError, ValueError):  # of values that ``write_samples`` never writes
        lines, found = b"", ""
    if found != expected:
        what = f"it or {CLASSES} does not match {SUMMARY}"
        raise _damaged(root / SAMPLES, f"{what}: {found or 'no labels'}", expected=expected)
    try:
        images = np.lib.format.open_memmap(root / IMAGES, mode="r")
    except (OSError, ValueError) as error:
        raise _damaged(root / IMAGES, error) from error
    count = len(table["sample_id"])
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:2] != (count, 3):
        raise _damaged(root / IMAGES, f"{images.dtype} {list(images.shape)} for {count} samples")
    found = content_digest(root / IMAGES, lines, classes)
    if found != digest:
        raise _damaged(root / IMAGES, f"pixels with another digest, {found}", expected=f"{digest} ({SUMMARY})")
    splits, ids = np.array(table["split"], dtype=str), np.array(table["sample_id"], dtype=str)
    if not set(splits.tolist()) <= set(SPLITS) or len(np.unique(ids)) != count:
        raise _damaged(root / SAMPLES, "an unknown split or a repeated sample_id")
    targets, sites = targets_of(table["labels"], classes, root), np.array(table["site"], dtype=str)
    groups = np.array(table["group"], dtype=str)
    annotated = np.array([labels is not None for labels in table["labels"]], dtype=bool)
    if (splits[~annotated] != "train").any():
        raise _damaged(root / SAMPLES, "an unlabelled image outside the split train")
    for array in (targets, sites, splits, ids, groups, annotated):
        array.setflags(write=False)
    return Dataset(root, classes, images, targets, sites, splits, digest, ids, groups, annotated)


def targets_of(labels: Sequence[list[str] | None], classes: list[str], where: Path) -> np.ndarray:
    """Turn label lists into a uint8 matrix [N, C]; ``None``, unlabelled, becomes a row of 0.

    Raises:
        UserError: A label is not in ``classes``, or an entry is not a list.
    """
    column = {name: index for index, name in enumerate(classes)}
    targets = np.zeros((len(labels), len(classes)), dtype=np.uint8)
    for row, names in enumerate(labels):
        if names is None:
            continue
        if not isinstance(names, list):
            raise _damaged(where, f"labels {names!r} instead of a list in row {row}")
        for name in names:
            if name not in column:
                raise _damaged(where, f"label {name!r} is not in {CLASSES}")
            targets[row, column[name]] = 1
    return targets


def content_digest(images: Path, lines: bytes, classes: list[str]) -> str:
    """Compute the sha256 over the pixels of ``images.npy``, the ``sample_lines`` and the classes."""
    with images.open("rb") as file:
        np.lib.format.read_magic(file)
        shape, _, _ = np.lib.format.read_array_header_1_0(file)
        digest = hashlib.sha256(json.dumps([list(shape), classes], ensure_ascii=False).encode())
        while block := file.read(2**22):
            digest.update(block)
    digest.update(lines)
    return digest.hexdigest()


def labels_digest(lines: bytes, classes: list[str]) -> str:
    """Compute the sha256 over the ``sample_lines`` and the classes, without the pixels."""
    return hashlib.sha256(json.dumps(classes, ensure_ascii=False).encode() + b"\n" + lines).hexdigest()


def sample_lines(samples: Iterable[dict[str, Any]]) -> bytes:
    """Return what the digests count of the samples: a line of JSON for each, in their order."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    return "".join(f"{encode([sample[name] for name in _COLUMNS])}\n" for sample in samples).encode()


def write_samples(samples: list[dict[str, Any]], path: Path) -> None:
    """Write ``samples.parquet``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"labels": pa.list_(pa.string())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])
    columns = {name: [sample[name] for sample in samples] for name in _COLUMNS}
    with replacing_file(path) as temporary:
        pq.write_table(pa.Table.from_pydict(columns, schema), temporary)


def _damaged(path: Path, found: object, expected: object = None) -> UserError:
    return damaged(path, found, _HINT, expected=expected)
