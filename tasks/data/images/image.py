"""Sources of pixels: small records that are sent to a worker process and loaded there."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from tasks.data.images.decode import Decoded, DecodeError, Limits, decode, decode_bytes


class ImageSource(Protocol):
    """An image that can be loaded. Instances are small and can be pickled."""

    def cache_key(self) -> str:
        """Return what the pixels depend on; if it is unchanged, an earlier result is used again."""

    def load(self, limits: Limits) -> Decoded:
        """Return the upright RGB pixels.

        Raises:
            DecodeError: The image cannot be used.
        """


@dataclass(frozen=True)
class ImageFile:
    """An image file."""

    path: Path

    def cache_key(self) -> str:
        """Return path, size and modification time."""
        try:
            status = self.path.stat()
        except OSError as error:
            return f"{self.path}|{error.errno}"
        return f"{self.path}|{status.st_size}|{status.st_mtime_ns}"

    def load(self, limits: Limits) -> Decoded:
        """Decode the file."""
        return decode(self.path, limits)


@dataclass(frozen=True)
class ImageBytes:
    """An image file that is a cell of a table.

    Attributes:
        data: The file's bytes.
        suffix: The suffix of its name, "" without one.
    """

    data: bytes = field(repr=False)
    suffix: str = ""

    def cache_key(self) -> str:
        """Return the bytes' hash."""
        return hashlib.sha256(self.data).hexdigest()

    def load(self, limits: Limits) -> Decoded:
        """Decode the bytes."""
        if len(self.data) > limits.max_bytes:
            raise DecodeError("too_large", f"{len(self.data)} bytes, allowed {limits.max_bytes}", self.cache_key())
        return decode_bytes(self.data, self.suffix, limits)


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Decoded pixels of a container format: uint8 [H, W] grey or [H, W, 3] RGB."""

    pixels: np.ndarray

    def cache_key(self) -> str:
        """Return the pixels' hash."""
        return self._hash()

    def load(self, limits: Limits) -> Decoded:
        """Return the pixels as RGB; the hash is that of the pixels."""
        pixels = self.pixels
        shape = pixels.shape
        good = pixels.dtype == np.uint8 and (pixels.ndim == 2 or (pixels.ndim == 3 and shape[2] == 3))
        if not good:
            raise DecodeError("bad_mode", f"an array {pixels.dtype} {list(shape)}", self._hash())
        limits.check(shape[1], shape[0], self._hash())
        rgb = np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels
        return Decoded(rgb, shape[1], shape[0], self._hash())

    def _hash(self) -> str:
        head = f"{self.pixels.dtype}{list(self.pixels.shape)}".encode()
        return hashlib.sha256(head + self.pixels.tobytes()).hexdigest()
