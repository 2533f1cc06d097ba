"""Parallel decoding in chunks, with a cache that survives a crash.

By default, one process per core decodes. The pixels and results of a chunk are stored under a cache key, the digest of
everything that determines them; a restarted ingest does not decode such chunks again. Chunks are returned in the order
of the source and only a few are in flight at any time, so memory does not grow.
"""

import hashlib
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from models.errors import UserError
from tasks.core.processes import process_pool
from tasks.core.source_digest import PLUMBING, closure, source_digest
from tasks.data.decoding.chunk_files import DamagedChunkError, DecodeResult, pixels_digest, read_cached, write_chunk
from tasks.data.images.decode import DecodeError, Limits
from tasks.data.images.image import ImageBytes, ImageSource
from tasks.data.images.pixels import few_colours
from tasks.data.images.resizing import Resize, resize
from tasks.data.source.sample import RawSample

CHUNK = 64  # images
_MAX_CHUNK_BYTES = 2**24  # bytes of encoded images that a chunk may hold in memory
_MIN_IMAGES_FOR_POOL = 4 * CHUNK  # starting them takes as long as some hundred images


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

    def code(self, images: list[ImageSource]) -> str:
        """Return the digest of the code that decodes these images; "" if nothing is cached."""
        return "" if self.cache is None else decoding_code(frozenset(type(image).__module__ for image in images))

    def cache_key(self, images: list[ImageSource], code: str) -> str:
        """Return the name of the chunk that these images form; ``code`` is what ``code`` returns."""
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
            images = [sample.image for sample in chunk if sample.image]
            yield from _with_results(chunk, decode_chunk(images, how, how.code(images)))
        return
    pool = process_pool(workers)
    try:
        yield from _in_order(chain(first, chunks), how, pool, 2 * workers + 2)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def decode_chunk(images: list[ImageSource], how: Decoding, code: str) -> list[DecodeResult]:
    """Decode some images, or read the cached results of an earlier call; runs in a worker process.

    Args:
        images: The images of a chunk.
        how: The settings.
        code: Their ``Decoding.code``, as reading the code takes a worker as long as some hundred images.
    """
    if how.cache is None:
        return [_decode_image(image, how)[0] for image in images]
    name = how.cache_key(images, code)
    record = how.cache / f"{name}.json"
    if record.is_file():
        try:
            return read_cached(how.cache, name, len(images))
        except DamagedChunkError as error:
            logging.getLogger(__name__).warning("a decoded chunk is damaged (%s): decoded again: %s", error, record)
    results: list[DecodeResult] = []
    pixels = np.empty((len(images), 3, how.size, how.size), dtype=np.uint8)
    rows = 0
    for image in images:
        result, small = _decode_image(image, how)
        if small is not None:
            pixels[rows] = small
            result, rows = result._replace(chunk=name, row=rows), rows + 1
        results.append(result)
    write_chunk(how.cache, name, results, pixels[:rows])
    return results


def _decode_image(image: ImageSource, how: Decoding) -> tuple[DecodeResult, np.ndarray | None]:
    """Return the result, and the resized pixels, uint8 [3, S, S], if the image can be used."""
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
    planes = np.ascontiguousarray(small.transpose(2, 0, 1))
    result = DecodeResult(
        "fixed" if found.reason else "ok",
        found.reason,
        found.detail,
        found.width,
        found.height,
        found.sha256,
        found.sides_swapped,
        pixels_digest(planes),
        phash,
        few_colours(found.image),
    )
    return result, planes


def _chunked(samples: Iterable[RawSample]) -> Iterator[list[RawSample]]:
    chunk: list[RawSample] = []
    images = weight = 0
    for sample in samples:
        chunk.append(sample)
        images += sample.image is not None
        weight += len(sample.image.data) if isinstance(sample.image, ImageBytes) else 0
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
            waiting.append((chunk, pool.submit(decode_chunk, images, how, how.code(images))))
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
