"""FLAIR's HDF5 forms, as public code writes them. Labels are read here, pixels when an image is decoded.

===========================  ======================================================================================
by user, label strings       ``PARTITION/USER/{images, labels, fine_grained_labels, image_ids}``, labels joined by ``|``
by user, label indices       ``PARTITION/USER/{images, labels_row, labels_col}`` with ``metadata/label_mapping`` (JSON)
by image                     ``PARTITION/IMAGE/{image, labels, user_id}``
===========================  ======================================================================================

The first is apple/ml-flair's, the second apple/pfl-research's: image ``row`` of the user has label ``col``; both write
the third if they do not group by user. ``examples/USER/...`` with a file for each partition is read too, the
partition being a word of the file's name. Images are uint8 [n, H, W, 3], or encoded images.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from models.errors import UserError
from tasks.data.formats.flair.records import PARTITIONS, Record, checked_record
from tasks.data.images.decode import Decoded, DecodeError, Limits, decode_bytes
from tasks.data.images.image import ImageArray, ImageFile

SUFFIXES = (".h5", ".hdf5")
_IMAGES, _IDS = ("images", "image"), ("image_ids", "image_id")
_METADATA, _NO_PARTITIONS = "metadata", "examples"
_EXPECTED = "PARTITION/USER/{images, labels}, or PARTITION/IMAGE/{image, labels, user_id}"
# What h5py raises on damaged files, determined with randomly damaged files of all three forms.
_DAMAGE = (OSError, LookupError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError)

Found = tuple[str, Record, "Hdf5Image | None"]


@dataclass(frozen=True)
class Hdf5Image:
    """An image in an HDF5 file: a whole data set, or its ``index``-th part."""

    file: Path
    dataset: str
    index: int | None

    def cache_key(self) -> str:
        """Return path, size and modification time of the file, and the place in it."""
        return f"{ImageFile(self.file).cache_key()}|{self.dataset}|{self.index}"

    def load(self, limits: Limits) -> Decoded:
        """Return the pixels, decoded if encoded bytes are stored; there is no hash of a single file."""
        import h5py

        # Opened for each image (0.3 ms): HDF5 would return the old content of a file that is still open.
        try:
            with h5py.File(self.file, "r") as file:
                stored = _reached(file, self.dataset)
                shape = stored.shape[0 if self.index is None else 1 :]
                if len(shape) in (2, 3):
                    limits.check(shape[1], shape[0], "")  # before anything is read
                value = stored[() if self.index is None else self.index]
        except DecodeError:
            raise
        except Exception as error:  # as in tasks.data.images.decode: the file's fault, whatever is raised
            raise DecodeError("truncated", f"{self.dataset}: {_one_line(error)}") from error
        if isinstance(value, bytes):
            return decode_bytes(value, "", limits)
        pixels = np.asarray(value)
        if pixels.dtype == np.uint8 and pixels.ndim == 1:  # an encoded image as numbers
            return decode_bytes(pixels.tobytes(), "", limits)
        return ImageArray(pixels).load(limits)


def holds_images(path: Path) -> bool:
    """Check by its first groups whether a file has one of the forms; network weights are HDF5 files too."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            for _, group in _partitions(file):
                key = next(iter(group), None)
                inner = None if key is None else _member(group, key, h5py.Group)
                if inner is not None and any(name in inner for name in _IMAGES):
                    return True
    except _DAMAGE:
        return False  # reading the file itself reports the fault
    return False


def read_records(path: Path, key: str) -> Iterator[Found]:
    """Yield every image as (its name within the file, its record, the source of its pixels).

    Entries that are no group with images are yielded too, without an image; the record's fault says why.

    Args:
        path: The file.
        key: Name of the data set that holds the labels.

    Raises:
        UserError: It is no HDF5 file, its contents cannot be listed, or it has none of the forms.
    """
    import h5py

    found = False
    try:
        with h5py.File(path, "r") as file:
            names = _names(file, key)
            parts = dict(_partitions(file))
            for other in sorted(set(file) - set(parts) - {_METADATA}) if parts else ():
                fault = f"no group of a partition ({', '.join(PARTITIONS)})"
                yield other, Record("", "", "", None, fault), None
            for part, group in parts.items():
                partition = _partition_of(path) if part == _NO_PARTITIONS else part
                for name in sorted(group):
                    inner = _member(group, name, h5py.Group)
                    found = found or inner is not None
                    yield from _of_group(path, inner, f"{part}/{name}", partition, names, key)
    except _DAMAGE as error:
        raise UserError("cannot read the HDF5 file", where=path, found=_one_line(error)) from error
    if not found:
        raise UserError("no user's group with images and labels in the file", where=path, expected=_EXPECTED)


def _of_group(
    path: Path, group: Any, place: str, partition: str, names: dict[int, str] | None, key: str
) -> Iterator[Found]:
    """Yield the images of one user, or one image."""
    import h5py

    last, images = place.rpartition("/")[2], None
    try:
        name = next((name for name in _IMAGES if group is not None and name in group), "images")
        images = None if group is None else _member(group, name, h5py.Dataset)
        # [n, H, W, 3], or [n] of encoded images, is a user's; [H, W, 3] is one image.
        whole = images is not None and images.ndim in (0, 2, 3)
        count = 0 if images is None else 1 if whole else len(images)
    except _DAMAGE:
        images = None
    if images is None:
        yield place, Record("", last, partition, None, "no images that can be read"), None
        return
    facts, fault, ids = [(None, "")] * count, "", [""] * count
    user = "" if whole else last
    try:
        if whole:
            user, ids = _texts(group, "user_id", 1)[0] if "user_id" in group else "", [last]
        elif any(ids_ in group for ids_ in _IDS):
            ids = _texts(group, next(ids_ for ids_ in _IDS if ids_ in group), count)
        facts = _labels(group, key, count, names)
    except _DAMAGE as error:
        fault = _one_line(error)
    unique = len(set(ids)) == count and all(ids)
    for index, (labels, wrong) in enumerate(facts):
        record = checked_record(ids[index], user, partition, labels, fault or wrong)
        within = place if whole else f"{place}/{ids[index] if unique else f'{index:06d}'}"
        yield within, record, Hdf5Image(path, f"{place}/{name}", None if whole else index)


def _labels(group: Any, key: str, count: int, names: dict[int, str] | None) -> list[tuple[Any, str]]:
    """Return the labels of each image of a group, and what is wrong with them."""
    if key in group:
        cells = [text.split("|") for text in _texts(group, key, count)]
        return [(tuple(label for label in cell if label.strip()), "") for cell in cells]
    if f"{key}_row" not in group or f"{key}_col" not in group:
        raise ValueError(f"the group lacks {key}; it has {', '.join(group)}")
    if names is None:
        raise ValueError(f"{_METADATA}/{_mapping(key)} does not say what the indices of the labels mean")
    rows, columns = (_values(group, f"{key}_{axis}") for axis in ("row", "col"))
    if len(rows) != len(columns) or not all(isinstance(row, int) and 0 <= row < count for row in rows):
        raise ValueError(f"{key}_row and {key}_col do not fit {count} images")
    found: list[list[str]] = [[] for _ in range(count)]
    wrong = [""] * count
    for row, column in zip(rows, columns, strict=True):
        if column in names:
            found[row].append(names[column])
        else:
            wrong[row] = f"label index {column}, there are {len(names)} labels"
    return [(tuple(labels), fault) for labels, fault in zip(found, wrong, strict=True)]


def _names(file: Any, key: str) -> dict[int, str] | None:
    """Return index -> label from the metadata; ``None`` if they do not say."""
    import h5py

    metadata = _member(file, _METADATA, h5py.Group)
    if metadata is None or _mapping(key) not in metadata:
        return None
    found = json.loads(_texts(metadata, _mapping(key), 1)[0])
    if not isinstance(found, dict):
        raise ValueError(f"{_METADATA}/{_mapping(key)} is no JSON object")
    return {index: label for label, index in found.items()}


def _mapping(key: str) -> str:
    return f"{key.removesuffix('s')}_mapping"


def _partitions(file: Any) -> Iterator[tuple[str, Any]]:
    import h5py

    for name in (*PARTITIONS, _NO_PARTITIONS):
        group = _member(file, name, h5py.Group)
        if group is not None:
            yield name, group


def _partition_of(path: Path) -> str:
    words = re.split(r"[^a-z]+", path.stem.lower())
    return next((name for name in PARTITIONS if name in words), "")


def _member(group: Any, name: str, kind: type) -> Any:
    """Return a member of this kind that is stored in this file; links to other files are not followed."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return None
    found = group[name]
    elsewhere = isinstance(found, h5py.Dataset) and (found.external or found.is_virtual)
    return found if isinstance(found, kind) and not elsewhere else None


def _reached(file: Any, place: str) -> Any:
    import h5py

    *groups, last = PurePosixPath(place).parts
    for name in groups:
        file = _member(file, name, h5py.Group)
        if file is None:
            raise KeyError(f"there is no group {name}")
    found = _member(file, last, h5py.Dataset)
    if found is None:
        raise KeyError("there is no such data set in this file")
    return found


def _values(group: Any, name: str) -> list[Any]:
    import h5py

    dataset = _member(group, name, h5py.Dataset)
    if dataset is None:
        raise KeyError(f"there is no data set {name}")
    values: list[Any] = np.ravel(dataset[()]).tolist()
    return values


def _texts(group: Any, name: str, count: int) -> list[str]:
    values = _values(group, name)
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries for {count} image(s)")
    return [value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in values]


def _one_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
