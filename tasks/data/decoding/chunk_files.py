"""The files of decoded chunks: pixels in one array, what was found in a record beside it, both checked when read."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from models.errors import UserError
from models.files import replacing_file, write_text


class DecodeResult(NamedTuple):
    """The result of decoding one image.

    Attributes:
        status: ``ok``, ``fixed`` or ``quarantined``.
        reason: Code of ``tasks.data.ingest.manifest.REASONS``, ``""`` for plain ``ok``.
        detail: One human-readable line.
        width: Pixels after EXIF transposition, 0 if unknown.
        height: Pixels after EXIF transposition, 0 if unknown.
        sha256: Hash of the file's bytes.
        sides_swapped: Whether EXIF transposition swapped width and height.
        pixels: Hash of the resized pixels, ``""`` if there are none.
        phash: Perceptual hash, 16 hex digits, ``""`` when not asked for.
        few_colours: Whether it has few colours, as a mask has: ``exact``, ``nearly`` or ``""``.
        chunk: Cache key of the chunk that holds the pixels.
        row: Row of the pixels in the chunk, -1 if there are none.
    """

    status: str
    reason: str = ""
    detail: str = ""
    width: int = 0
    height: int = 0
    sha256: str = ""
    sides_swapped: bool = False
    pixels: str = ""
    phash: str = ""
    few_colours: str = ""
    chunk: str = ""
    row: int = -1


def write_chunk(folder: Path, name: str, results: Sequence[DecodeResult], pixels: np.ndarray) -> None:
    """Write a chunk; ``pixels`` are those of its usable images, uint8 [k, 3, S, S]."""
    if len(pixels):
        with replacing_file(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, pixels, allow_pickle=False)
    # last, so that a chunk with a record is complete
    write_text(folder / f"{name}.json", with_checksum({"fields": DecodeResult._fields, "images": results}))


def chunk_pixels(folder: Path, name: str) -> np.ndarray:
    """Return the pixels of a chunk, uint8 [k, 3, S, S].

    Raises:
        UserError: They are missing or cannot be read.
    """
    try:
        pixels: np.ndarray = np.load(folder / f"{name}.npy", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged_chunk(folder, name, error) from error
    return pixels


def pixels_digest(small: np.ndarray) -> str:
    """Return ``DecodeResult.pixels`` of a resized image, uint8 [3, S, S], contiguous."""
    return hashlib.sha256(small.data).hexdigest()


def damaged_chunk(folder: Path, name: str, found: object) -> UserError:
    """Build the error for pixels that are not those that were decoded."""
    return UserError(
        "a decoded chunk is damaged",
        where=folder / f"{name}.npy",
        found=found,
        hint="run the command again: the chunk is decoded anew",
    )


class DamagedChunkError(Exception):
    """A cached chunk that differs from what was written, and why."""


def with_checksum(values: object) -> str:
    """Serialise the record of a chunk; the first line is the digest of the second, so that any change shows."""
    text = json.dumps(values)
    return f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def read_cached(folder: Path, name: str, count: int) -> list[DecodeResult]:
    """Return the results that an earlier call has written, checked against their digests.

    Raises:
        DamagedChunkError: The record or the pixels are not what was written.
    """
    try:
        digest, _, text = (folder / f"{name}.json").read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError) as error:
        raise DamagedChunkError(f"its record cannot be read: {error}") from error
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise DamagedChunkError("its record does not match its checksum" if text else "its record is empty")
    try:
        found = json.loads(text)
        if found["fields"] != list(DecodeResult._fields):
            raise TypeError
        results = list(map(DecodeResult._make, found["images"]))
    except (TypeError, KeyError) as error:  # written by a release with other fields
        raise DamagedChunkError("its record was written by another release") from error
    if len(results) != count:
        raise DamagedChunkError(f"its record is of {len(results)} images, there are {count}")
    if any(result.row >= 0 for result in results):
        try:
            pixels = chunk_pixels(folder, name)
        except UserError as error:
            raise DamagedChunkError(f"its pixels cannot be read: {error.found}") from error
        for result in results:
            if result.row >= len(pixels) or (result.row >= 0 and pixels_digest(pixels[result.row]) != result.pixels):
                raise DamagedChunkError("its pixels are not those that were decoded")
    return results
