"""FLAIR's HDF5 forms, as public code writes them.

===========================  ======================================================================================
by user, label strings       ``PARTITION/USER/{images, labels, fine_grained_labels, image_ids}``, labels joined by ``|``
by user, label indices       ``PARTITION/USER/{images, labels_row, labels_col}`` with ``metadata/label_mapping`` (JSON)
by image                     ``PARTITION/IMAGE/{image, labels, user_id}``
===========================  ======================================================================================

``examples/USER/...`` with a file for each partition is read too. Images are uint8 [n, H, W, 3], or encoded pictures.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from models.errors import UserError
from tasks.data.decode import Decoded, DecodeError, Limits, decode_bytes
from tasks.data.source import ArrayPicture

_IMAGES, _IDS = ("images", "image"), ("image_ids", "image_id")
_EXPECTED = "PARTITION/USER/{images, labels}, or PARTITION/IMAGE/{image, labels, user_id}"


@dataclass(frozen=True)
class Hdf5Picture:
    """One image of a dataset (``index`` ``None``: all of it), read when it is loaded."""

    path: Path
    dataset: str
    index: int | None

    def stamp(self) -> str:
        """File, size, time of the last change, and place in it."""
        status = self.path.stat()
        return f"{self.path}|{status.st_size}|{status.st_mtime_ns}|{self.dataset}|{self.index}"

    def load(self, limits: Limits) -> Decoded:
        """The pixels, or the decoded picture when bytes are stored."""
        try:
            value = _open(str(self.path), self.path.stat().st_mtime_ns)[self.dataset][
                () if self.index is None else self.index
            ]
        except (OSError, KeyError) as error:
            raise DecodeError("unreadable", str(error)) from error
        if isinstance(value, bytes):
            return decode_bytes(value, "", limits)
        pixels = np.asarray(value)
        if pixels.dtype == np.uint8 and pixels.ndim == 1:  # an encoded picture as numbers
            return decode_bytes(pixels.tobytes(), "", limits)
        return ArrayPicture(pixels).load(limits)


@dataclass(frozen=True)
class Record:
    """One image of an HDF5 file: ``name`` is its path for the manifest, ``labels`` ``None`` when it has no entry."""

    name: str
    user: str
    partition: str
    labels: tuple[str, ...] | None
    picture: Hdf5Picture


def records(path: Path, relative: str, labels: str) -> Iterator[Record]:
    """The images of a file, users in name order.

    Args:
        path: The file.
        relative: Its path relative to the source's root.
        labels: Name of the dataset that holds the labels.

    Raises:
        UserError: It is no HDF5 file, is damaged, or has neither layout.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            found = sorted(_users(file, ""))
            for group in found:
                yield from _of_user(path, relative, file, group, labels)
    except (OSError, RuntimeError, KeyError, IndexError, ValueError) as error:
        raise UserError("cannot read the HDF5 file", where=path, found=error) from error
    if not found:
        raise UserError("no user's group with images and labels is in the file", where=path, expected=_EXPECTED)


def _users(group: Any, at: str) -> Iterator[str]:
    """Paths of the groups that hold a user's images."""
    import h5py

    if any(isinstance(group.get(name), h5py.Dataset) for name in _IMAGES):
        yield at
        return
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            yield from _users(item, f"{at}/{name}")


def _of_user(path: Path, relative: str, file: Any, at: str, labels: str) -> Iterator[Record]:
    group = file[at] if at else file
    name = next(name for name in _IMAGES if name in group)
    parts = PurePosixPath(at).parts[1:]
    partition, owner = (parts[0] if len(parts) > 1 else ""), (parts[-1] if parts else "")
    if "user_id" in group:  # by image: the group is that of one image
        user, names = _text(group["user_id"][()]), _split(_text(_labels(path, group, at, labels)[()]))
        yield Record(f"{relative}{at}", user, partition, names, Hdf5Picture(path, f"{at}/{name}", None))
        return
    count = len(group[name])
    ids = next((group[key][()] for key in _IDS if key in group and len(group[key]) == count), None)
    for index, names in enumerate(_of_all(path, file, group, at, labels, count)):
        own = f"{index:06d}" if ids is None else _text(ids[index])
        yield Record(f"{relative}{at}/{own}", owner, partition, names, Hdf5Picture(path, f"{at}/{name}", index))


def _of_all(path: Path, file: Any, group: Any, at: str, labels: str, count: int) -> list[tuple[str, ...] | None]:
    """The labels of a user's images."""
    if f"{labels}_row" in group and f"{labels}_col" in group:
        mapping = f"metadata/{labels.removesuffix('s')}_mapping"
        if mapping not in file:
            raise UserError("label indices without their names", where=path, expected=mapping, found=", ".join(file))
        names = {index: label for label, index in json.loads(_text(file[mapping][()])).items()}
        found: list[list[str]] = [[] for _ in range(count)]
        for row, column in zip(group[f"{labels}_row"][()].tolist(), group[f"{labels}_col"][()].tolist(), strict=True):
            found[row].append(names[column])
        return [tuple(dict.fromkeys(some)) or None for some in found]
    texts = _labels(path, group, at, labels)[()]
    if texts.dtype.kind not in "OSU" or texts.shape != (count,):
        shape = f"{texts.dtype} {list(texts.shape)} for {count} images"
        raise UserError("labels must be one string per image", where=f"{path}: {at}/{labels}", found=shape)
    return [_split(_text(text)) for text in texts]


def _labels(path: Path, group: Any, at: str, labels: str) -> Any:
    if labels not in group:
        found = ", ".join(group)
        raise UserError("a group of images lacks its labels", where=f"{path}: {at}", expected=labels, found=found)
    return group[labels]


def _split(text: str) -> tuple[str, ...] | None:
    """Labels joined by ``|``; ``None`` for none, since FLAIR has no image without a label."""
    return tuple(dict.fromkeys(filter(None, (label.strip() for label in text.split("|"))))) or None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@lru_cache(maxsize=4)
def _open(path: str, _changed: int) -> Any:
    """The open file; one handle per process and state of the file, since opening takes longer than reading an image."""
    import h5py

    return h5py.File(path, "r")


def has_users(path: Path) -> bool:
    """Whether the file holds images; a network's weights are HDF5 files too."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return next(_users(file, ""), None) is not None
    except (OSError, RuntimeError, KeyError):
        return True  # damaged: reading it says so


def signature(path: Path) -> bool:
    """Whether the file begins as HDF5 files do."""
    try:
        with path.open("rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError:
        return False
