"""Decodes an image file to upright 8-bit RGB pixels, the same way for training, evaluation and prediction.

The content decides, not the name. Embedded colour profiles are always ignored. A JPEG that decodes may still be
damaged; only the hash taken here reveals later damage.
"""

import hashlib
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tasks.data.images.image_kinds import (
    EXTRA_FORMATS,
    HEAD,
    HEIF,
    content_kind,
    describe_beginning,
    describe_unread,
    has_heif,
    is_camera_raw,
)
from tasks.data.images.metadata import (
    ORIENTATION_TAG,
    SIDE_SWAPPING,
    UPRIGHT,
    exif_orientation,
    normalize_orientation,
    without_metadata,
)
from tasks.data.images.pixels import FlatError, Gray16, bad_mode, bit_depth, check_depth, only_image, to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP")  # JPEG's reader also opens MPO
_JPEG_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".mpo")
_SUFFIXES = {"JPEG": _JPEG_SUFFIXES, "MPO": _JPEG_SUFFIXES, "TIFF": (".tif", ".tiff"), "BMP": (".bmp", ".dib")}
_SUFFIXES |= {"PNG": (".png", ".apng"), "PPM": (".ppm", ".pgm", ".pbm", ".pnm"), "AVIF": (".avif", ".avifs")}
_SUFFIXES |= {"JPEG2000": (".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"), "HEIF": tuple(sorted(HEIF))}
_MAX_PAGES = 64  # of a TIFF that are inspected
DEFAULT_MAX_PIXELS = 89_478_485  # Pillow warns above this and refuses above twice as many
DEFAULT_MIN_SIDE = 16
DEFAULT_BACKGROUND = (255, 255, 255)


@dataclass(frozen=True)
class Limits:
    """Limits and options of decoding.

    Attributes:
        max_pixels: Maximum width times height, checked in the header before anything is decoded.
        min_side: Shortest side in pixels.
        background: RGB colour behind transparent pixels.
        enough: Minimum pixels of both sides; a larger JPEG is decoded at a half, a quarter or an eighth of its size if
            that keeps them. 0: always at full size.
        gray16: Which 16-bit grey value is white: 65535, the largest value of the fewest bits that hold the image, or
            the image's largest (and its smallest is black).
    """

    max_pixels: int = DEFAULT_MAX_PIXELS
    min_side: int = DEFAULT_MIN_SIDE
    background: tuple[int, int, int] = DEFAULT_BACKGROUND
    enough: int = 0
    gray16: Gray16 = "full"

    @property
    def max_bytes(self) -> int:
        """Longest file that is read into memory: the most pixels uncompressed, 16 bits per channel, plus headers."""
        return 8 * self.max_pixels + 2**20

    def check(self, width: int, height: int, sha256: str) -> None:
        """Refuse a size.

        Raises:
            DecodeError: Too large or too small.
        """
        if width * height > self.max_pixels:
            found = f"{width} x {height} pixels, allowed {self.max_pixels}"
            raise DecodeError("too_large", found, sha256, width, height)
        if min(width, height) < self.min_side:
            found = f"{width} x {height} pixels, shortest side {self.min_side}"
            raise DecodeError("too_small", found, sha256, width, height)


@dataclass(frozen=True)
class Decoded:
    """A decoded image.

    Attributes:
        image: uint8 RGB [H, W, 3], upright; smaller than the file's if ``Limits.enough`` allows.
        width: Pixels of the file's image after EXIF transposition.
        height: Pixels of the file's image after EXIF transposition.
        sha256: Hash of the file's bytes.
        reason: The first repair (a ``fixed`` code of ``manifest.REASONS``), ``""`` if none was needed.
        detail: Further repairs and notes, human-readable.
        sides_swapped: Whether EXIF transposition swapped width and height.
    """

    image: np.ndarray
    width: int
    height: int
    sha256: str
    reason: str = ""
    detail: str = ""
    sides_swapped: bool = False


class DecodeError(Exception):
    """The file cannot be used; ``reason`` is a ``quarantined`` code of ``manifest.REASONS``."""

    def __init__(self, reason: str, detail: str = "", sha256: str = "", width: int = 0, height: int = 0) -> None:
        super().__init__(reason, detail, sha256, width, height)  # all arguments, so that it survives pickling
        self.reason, self.detail, self.sha256, self.width, self.height = reason, detail, sha256, width, height

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class _UnreadError(DecodeError):
    """The file is an image of a format that is not read."""


def decode(path: Path, limits: Limits = Limits()) -> Decoded:
    """Read an image file completely and decode it to upright RGB.

    Raises:
        DecodeError: The file cannot be read, is not an image, is damaged, or would need a guess.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would never end
            raise DecodeError("unreadable", "not a regular file")
        if status.st_size > limits.max_bytes:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            raise DecodeError("too_large", f"{status.st_size} bytes, allowed {limits.max_bytes}", sha256)
        data = path.read_bytes()
    except OSError as error:
        raise DecodeError("unreadable", error.strerror or str(error)) from error
    return decode_bytes(data, path.suffix, limits)


def decode_bytes(data: bytes, suffix: str, limits: Limits = Limits()) -> Decoded:
    """Decode a file's content; ``suffix`` is that of its name, used only for a note.

    Raises:
        DecodeError: As ``decode``.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    if not data:
        raise DecodeError("empty", sha256=sha256)
    with warnings.catch_warnings():  # of decoders: their errors count
        warnings.simplefilter("ignore")
        return _decoded_or_repaired(data, suffix, limits, sha256)


def _decoded_or_repaired(data: bytes, suffix: str, limits: Limits, sha256: str) -> Decoded:
    """Decode a file; one that fails is tried again without its metadata."""
    try:
        return _decoded(data, suffix, limits, sha256)
    except _UnreadError:
        raise
    except DecodeError as error:
        bare = without_metadata(data) if error.reason in ("not_an_image", "truncated") else None
        if bare is None:
            raise
        try:
            return _decoded(bare[0], suffix, limits, sha256, bare[1])
        except DecodeError:
            raise error from None


def _decoded(data: bytes, suffix: str, limits: Limits, sha256: str, orientation: int | None = None) -> Decoded:
    """Decode once; ``orientation`` is given for a file whose metadata was removed."""
    repairs = [] if orientation is None else ["bad_metadata"]
    image = _open_image(data, suffix, sha256)
    width, height = _check_header(image, limits, sha256, repairs)
    with _as_decode_errors("truncated", sha256, width, height):
        if limits.enough and image.format == "JPEG":
            image.draft(image.mode, (limits.enough, limits.enough))
        if image.format != "TIFF":  # Pillow transposes a TIFF itself and drops its orientation
            image.load()  # before its metadata, whose faults do not matter, is read
        known = _orientation(image, repairs) if orientation is None else orientation
        if known != 1:
            repairs.append("exif")
        image.load()
        pixels = to_rgb(image, limits.background, limits.gray16, repairs)
        check_depth(pixels, bit_depth(image, data))
    if image.format == "TIFF" and orientation is None:
        width, height = image.size
    elif known != 1:
        pixels = np.ascontiguousarray(UPRIGHT[known](pixels))
        width, height = (height, width) if known in SIDE_SWAPPING else (width, height)
    notes = [f"also {repair}" for repair in repairs[1:]]
    if suffix and suffix.lower() not in _SUFFIXES.get(image.format or "", (f".{image.format}".lower(),)):
        notes.append(f"{image.format} content")
    sides_swapped = known in SIDE_SWAPPING and width != height
    return Decoded(pixels, width, height, sha256, repairs[0] if repairs else "", "; ".join(notes), sides_swapped)


@contextmanager
def _as_decode_errors(reason: str, sha256: str, width: int = 0, height: int = 0, found: str = "") -> Iterator[None]:
    """Turn whatever a decoder raises inside into a ``DecodeError``.

    Damaged files raise about ten kinds of exception, and others are possible. Running out of memory is passed on.
    """
    from PIL import Image

    try:
        yield
    except (DecodeError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise DecodeError("too_large", _one_line(error), sha256) from error
    except FlatError as error:
        raise DecodeError("flat", str(error), sha256, width, height) from error
    except Exception as error:
        raise DecodeError(reason, found or _one_line(error), sha256, width, height) from error


def _open_image(data: bytes, suffix: str, sha256: str) -> "Image":
    from PIL import Image

    kind = content_kind(data[:HEAD])
    camera = kind == "TIFF" and is_camera_raw(data, suffix)
    formats = (EXTRA_FORMATS[kind],) if kind in EXTRA_FORMATS else _FORMATS
    if kind == "HEIC" and has_heif():
        from pillow_heif import register_heif_opener

        register_heif_opener()
    if camera or (kind == "HEIC" and not has_heif()):
        raise _UnreadError("not_an_image", describe_unread("DNG" if camera else kind, suffix), sha256)
    try:
        with _as_decode_errors("not_an_image", sha256, found=describe_beginning(data)):
            return Image.open(BytesIO(data), formats=formats)
    except DecodeError as error:
        known = kind in _FORMATS or (formats[0] in Image.OPEN and kind in EXTRA_FORMATS)
        detail = "" if known else describe_unread(kind, suffix)
        if error.reason == "not_an_image" and detail:
            raise _UnreadError("not_an_image", detail, sha256) from error
        raise


def _check_header(image: "Image", limits: Limits, sha256: str, repairs: list[str]) -> tuple[int, int]:
    """Refuse an image by its header, before any pixel is decoded; choose the one full page of a TIFF.

    Returns:
        Width and height.
    """
    width, height = image.size
    with _as_decode_errors("truncated", sha256, width, height):
        frames = getattr(image, "n_frames", 1)
        if image.format == "TIFF" and 1 < frames <= _MAX_PAGES:
            page = only_image(image, frames)
            if page is not None:
                image.seek(page)
                frames, (width, height) = 1, image.size
                repairs.append("preview")
    limits.check(width, height, sha256)
    if frames > 1 and image.format not in ("MPO", "HEIF"):
        raise DecodeError("multi_frame", f"{frames} frames in a {image.format}", sha256, width, height)
    fault = bad_mode(image)
    if fault:
        raise DecodeError("bad_mode", fault, sha256, width, height)
    if frames > 1:
        repairs.append("mpo")
    return width, height


def _orientation(image: "Image", repairs: list[str]) -> int:
    """Return the orientation that the file's EXIF names; damage elsewhere in it does not matter."""
    try:
        return normalize_orientation(image.getexif().get(ORIENTATION_TAG, 1))
    except Exception:
        repairs.append("bad_metadata")
        block = image.info.get("exif")
        return exif_orientation(block) if isinstance(block, bytes) else 1


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    usual = isinstance(error, OSError | SyntaxError | ValueError)  # with human-readable texts
    return text if text and usual else f"{type(error).__name__} {text}".strip()
