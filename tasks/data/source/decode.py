"""Decodes an image file to upright 8-bit RGB pixels, the same way for training, evaluation and prediction.

The content decides, never the name. Embedded colour profiles are ignored, everywhere. That a JPEG decodes does not
prove that it is undamaged; only the hash taken here shows later damage.
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

from tasks.data.source.image_kinds import (
    EXTRA_FORMATS,
    HEAD,
    HEIF,
    content_kind,
    describe_beginning,
    describe_unread,
    has_heif,
    is_camera_raw,
)
from tasks.data.source.metadata import (
    ORIENTATION_TAG,
    SIDE_SWAPPING,
    UPRIGHT,
    exif_orientation,
    normalize_orientation,
    without_metadata,
)
from tasks.data.source.pixels import FlatError, Gray16, bad_mode, bit_depth, check_depth, only_image, to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP")  # MPO is found by JPEG's reader
_JPEG_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".mpo")
_SUFFIXES = {"JPEG": _JPEG_SUFFIXES, "MPO": _JPEG_SUFFIXES, "TIFF": (".tif", ".tiff"), "BMP": (".bmp", ".dib")}
_SUFFIXES |= {"PNG": (".png", ".apng"), "PPM": (".ppm", ".pgm", ".pbm", ".pnm"), "AVIF": (".avif", ".avifs")}
_SUFFIXES |= {"JPEG2000": (".jp2", ".j2k", ".jpf", ".jpx", ".j2c", ".jpc"), "HEIF": tuple(sorted(HEIF))}
_MAX_PAGES = 64  # of a TIFF that are looked at
DEFAULT_MAX_PIXELS = 89_478_485  # Pillow warns above this and refuses above twice as many
DEFAULT_MIN_SIDE = 16
DEFAULT_BACKGROUND = (255, 255, 255)


@dataclass(frozen=True)
class Limits:
    """What decides whether and how an image is decoded.

    Attributes:
        max_pixels: Most pixels (width times height), checked on the header before anything is decoded.
        min_side: Shortest side in pixels.
        background: RGB colour that shows through transparent parts.
        enough: Pixels that both sides need at least; a larger JPEG is decoded at a half, a quarter or an eighth of its
            size as long as they keep them. 0: always at full size.
        gray16: Which value of 16-bit grey is white: 65535, the largest of the fewest bits that hold the image's
            values, or the image's own largest (and its smallest is black).
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
    """An image that can be used.

    Attributes:
        image: uint8 RGB [H, W, 3], upright; smaller than the file's where ``Limits.enough`` allows.
        width: Pixels of the file's image, after turning upright.
        height: Pixels of the file's image, after turning upright.
        sha256: Hash of the file's bytes.
        reason: The first repair (a ``fixed`` code of ``manifest.REASONS``), ``""`` when none was needed.
        detail: Further repairs and notes, human-readable.
        sides_swapped: Whether turning upright swapped width and height.
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
        super().__init__(reason, detail, sha256, width, height)  # all of them, so that it survives pickling
        self.reason, self.detail, self.sha256, self.width, self.height = reason, detail, sha256, width, height

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class _UnreadError(DecodeError):
    """It is an image of a kind that is not read."""


def decode(path: Path, limits: Limits = Limits()) -> Decoded:
    """Read an image file completely and decode it to upright RGB.

    Raises:
        DecodeError: The file cannot be read, is no image, is damaged, or is of a kind that is not guessed at.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would never end
            raise DecodeError("unreadable", "it is no regular file")
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
    """Decode once; ``orientation`` is given for a file whose metadata was left out."""
    repairs = [] if orientation is None else ["bad_metadata"]
    image = _open_image(data, suffix, sha256)
    width, height = _check_header(image, limits, sha256, repairs)
    with _as_decode_errors("truncated", sha256, width, height):
        if limits.enough and image.format == "JPEG":
            image.draft(image.mode, (limits.enough, limits.enough))
        if image.format != "TIFF":  # which Pillow turns itself, and then it has no orientation any more
            image.load()  # before its metadata is asked for, whose faults are no matter
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


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Resize an image [H, W, 3] uint8 to [size, size, 3] uint8, antialiased (bicubic).

    The sides are squashed to a square, not cropped: a defect at the border stays in the image.
    """
    from PIL import Image

    if image.shape[:2] == (size, size):
        return image
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))


@contextmanager
def _as_decode_errors(reason: str, sha256: str, width: int = 0, height: int = 0, found: str = "") -> Iterator[None]:
    """Turn whatever a decoder raises inside into a ``DecodeError``; its warnings are ignored.

    Some ten kinds of exception were seen on damaged files, and nothing bounds them. Running out of memory is none.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    """Refuse by what the header says, before any pixel is decoded; of a TIFF's pages the one image is chosen.

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
    usual = isinstance(error, OSError | SyntaxError | ValueError)  # whose texts are made for people
    return text if text and usual else f"{type(error).__name__} {text}".strip()
