"""Parallel decoding in chunks, with a cache that survives a crash.

By default, one process per core decodes. The pixels and results of a chunk are stored under a cache key, the digest of
everything that determines them; a restarted ingest does not decode such chunks again. Chunks are returned in the order
of the source and only a few are in flight at any time, so memory does not grow.
"""

import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from models.errors import UserError
from models.files import replacing_file, write_text
from tasks.core.processes import process_pool
from tasks.core.source_digest import PLUMBING, closure, source_digest
from tasks.data.images.decode import DecodeError, Limits
from tasks.data.images.image import ImageSource, InMemory
from tasks.data.images.pixels import few_colours
from tasks.data.images.resizing import Resize, resize
from tasks.data.source.sample import RawSample

CHUNK = 64  # images
_MAX_CHUNK_BYTES = 2**24  # bytes of encoded images that a chunk may hold in memory
_MIN_IMAGES_FOR_POOL = 4 * CHUNK  # starting them takes as long as some hundred images


@dataclass(frozen=True)
class DecodeResult:
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
        few_colours: Whether it has few colours, as a mask has: ``exact``, ``nearly`` or ``""``.
        phash: Perceptual hash, 16 hex digits, ``""`` when not asked for.
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


@dataclass(frozen=True)
class Decoding:
    """How images become stored pixels.

    Attributes:
        size: Side of the stored images in pixels.
        limits: What is refused, and the background.
        perceptual: Whether perceptual hashes are taken too.
        cache: Where chunks are stored; ``None``: results only, no pixels are kept (an audit).
        resize: How an image becomes a square; a letterboxed one is on ``limits.background``.
    """

    size: int
    limits: Limits
    perceptual: bool = False
    cache: Path | None = None
    resize: Resize = "squash"

    def cache_key(self, images: list[ImageSource]) -> str:
        """Return the name of the chunk that these images form."""
        code = decoding_code(frozenset(type(image).__module__ for image in images))
        digest = hashlib.sha256(f"{code}|{self.size}|{self.limits}|{self.perceptual}|{self.resize}".encode())
        for image in images:
            digest.update(b"\n" + image.cache_key().encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:32]


@cache
def decoding_code(modules: frozenset[str]) -> str:
    """Return the digest of the code that makes pixels, with the modules of the kinds of images that are decoded."""
    known = {name for name in modules if name.startswith("tasks.")}
    skipped = (*PLUMBING, "tasks.data.formats.shared", "tasks.data.ingest", "tasks.data.text")
    return source_digest(closure({__name__} | known, skipped))


def decoded(
    samples: Iterable[RawSample], how: Decoding, workers: int | None = None
) -> Iterator[tuple[RawSample, DecodeResult | None]]:
    """Yield the samples in their order, each with its decode result; ``None`` for those without an image.

    Args:
        samples: What a reader yields.
        how: The settings.
        workers: Processes; ``None``: one for each core that this process may use. A few images need no workers.

    Raises:
        UserError: A worker process died (out of memory, or a crash in a decoder); the message names the images.
    """
    workers = workers or len(os.sched_getaffinity(0))
    chunks = _chunked(samples)
    first = list(islice(chunks, _MIN_IMAGES_FOR_POOL // CHUNK))
    if workers == 1 or sum(sample.image is not None for chunk in first for sample in chunk) < _MIN_IMAGES_FOR_POOL:
        for chunk in chain(first, chunks):
            yield from _with_results(chunk, decode_chunk([s.image for s in chunk if s.image], how))
        return
    pool = process_pool(workers)
    try:
        yield from _in_order(chain(first, chunks), how, pool, 2 * workers + 2)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def decode_chunk(images: list[ImageSource], how: Decoding) -> list[DecodeResult]:
    """Decode some images, or read the cached results of an earlier call; runs in a worker process."""
    if how.cache is None:
        return [_decode_image(image, how)[0] for image in images]
    name = how.cache_key(images)
    record = how.cache / f"{name}.json"
    if record.is_file():
        try:
            return read_cached(how.cache, name, len(images))
        except DamagedChunkError as error:
            logging.getLogger(__name__).warning("a decoded chunk is damaged (%s): decoded again: %s", error, record)
    results: list[DecodeResult] = []
    stack: list[np.ndarray] = []
    for image in images:
        result, small = _decode_image(image, how)
        if small is not None:
            result = DecodeResult(**asdict(result) | {"chunk": name, "row": len(stack)})
            stack.append(small.transpose(2, 0, 1))
        results.append(result)
    if stack:
        _write_array(how.cache / f"{name}.npy", np.ascontiguousarray(stack))
    # last, so that a chunk with a record is complete
    write_text(record, with_checksum([asdict(result) for result in results]))
    return results


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
    """Return ``DecodeResult.pixels`` of a resized image, uint8 [S, S, 3]."""
    return hashlib.sha256(np.ascontiguousarray(small).data).hexdigest()


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


def with_checksum(values: list[dict[str, object]]) -> str:
    """Serialise the results of a chunk; the first line is the digest of the second, so that any change shows."""
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
        results = [DecodeResult(**values) for values in json.loads(text)]
    except TypeError as error:  # written by a release with other fields
        raise DamagedChunkError("its record was written by another release") from error
    if len(results) != count:
        raise DamagedChunkError(f"its record is of {len(results)} images, there are {count}")
    if any(result.row >= 0 for result in results):
        try:
            pixels = chunk_pixels(folder, name)
        except UserError as error:
            raise DamagedChunkError(f"its pixels cannot be read: {error.found}") from error
        for result in results:
            if result.row >= len(pixels) or (
                result.row >= 0 and pixels_digest(pixels[result.row].transpose(1, 2, 0)) != result.pixels
            ):
                raise DamagedChunkError("its pixels are not those that were decoded")
    return results


def _decode_image(image: ImageSource, how: Decoding) -> tuple[DecodeResult, np.ndarray | None]:
    """Return the result, and the resized pixels [S, S, 3] if the image can be used."""
    try:
        found = image.load(how.limits)
    except DecodeError as error:
        return DecodeResult("quarantined", error.reason, error.detail, error.width, error.height, error.sha256), None
    except MemoryError as error:
        hint = "--workers 1 needs the least memory; a lower ingest.max_pixels refuses large images"
        raise UserError("out of memory while decoding an image", where=image, hint=hint) from error
    small = resize(found.image, how.size, how.resize, how.limits.background)
    phash = ""
    if how.perceptual:
        from tasks.data.decoding.near_duplicates import perceptual_hash

        phash = perceptual_hash(found.image)
    pixels = pixels_digest(small)
    status = "fixed" if found.reason else "ok"
    size = (found.width, found.height)
    colours = few_colours(found.image)
    return DecodeResult(
        status, found.reason, found.detail, *size, found.sha256, found.sides_swapped, pixels, phash, colours
    ), small


def _write_array(path: Path, array: np.ndarray) -> None:
    with replacing_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _chunked(samples: Iterable[RawSample]) -> Iterator[list[RawSample]]:
    chunk: list[RawSample] = []
    images = weight = 0
    for sample in samples:
        chunk.append(sample)
        images += sample.image is not None
        weight += sample.image.weight if isinstance(sample.image, InMemory) else 0
        if images == CHUNK or weight > _MAX_CHUNK_BYTES or len(chunk) == 16 * CHUNK:
            yield chunk
            chunk, images, weight = [], 0, 0
    if chunk:
        yield chunk


def _with_results(
    chunk: list[RawSample], results: list[DecodeResult]
) -> Iterator[tuple[RawSample, DecodeResult | None]]:
    remaining = iter(results)
    for sample in chunk:
        yield sample, next(remaining) if sample.image is not None else None


def _in_order(
    chunks: Iterator[list[RawSample]], how: Decoding, pool: Executor, ahead: int
) -> Iterator[tuple[RawSample, DecodeResult | None]]:
    waiting: deque[tuple[list[RawSample], Future[list[DecodeResult]]]] = deque()
    try:
        for chunk in chunks:
            images = [sample.image for sample in chunk if sample.image is not None]
            waiting.append((chunk, pool.submit(decode_chunk, images, how)))
            if len(waiting) > ahead:
                chunk, future = waiting.popleft()
                yield from _with_results(chunk, future.result())
        while waiting:
            chunk, future = waiting.popleft()
            yield from _with_results(chunk, future.result())
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process that decodes images died",
            where=f"{chunk[0].path} to {chunk[-1].path}",
            found="out of memory, killed, a crash in a decoder, or the program was read from stdin",
            hint="run the command again: finished chunks are kept; --workers 1 needs the least memory",
        ) from error
