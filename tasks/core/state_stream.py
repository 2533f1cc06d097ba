"""States that are larger than the memory for them: reading and writing safetensors files in ranges of entries.

safetensors reads slices along dimensions and writes whole states. The server mixes hundreds of models, so it needs
ranges of a flattened tensor of every model at once, and files that grow tensor by tensor. A file is open only while a
range is read or written: a process may open no more than about 1,000.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from models.errors import UserError

DTYPES = {  # in the order in which safetensors stores them: wide types first, which keeps every tensor aligned
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
_RANK = {dtype: rank for rank, dtype in enumerate(DTYPES.values())}
ALIGNED = 4096  # entries: blocks begin at multiples of it, so that vectorised loops see the same tails


UNKNOWN = "0" * 64  # the digest of a file that is not complete


class Entry(NamedTuple):
    """One tensor of a file: its type and shape, and where its bytes begin in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


def ranges(numel: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of 0..numel, each of ``most`` entries rounded to a multiple of ``ALIGNED``."""
    step = max(ALIGNED, most // ALIGNED * ALIGNED)
    for start in range(0, numel, step):
        yield start, min(start + step, numel)


class StateFile:
    """A safetensors file that is read in ranges of entries.

    Args:
        path: The file.

    Attributes:
        entries: Name -> its tensor's type, shape and place.

    Raises:
        UserError: If the file is no safetensors file, or holds a type that no model has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            self.entries = {
                name: Entry(DTYPES[value["dtype"]], tuple(value["shape"]), 8 + size + value["data_offsets"][0])
                for name, value in header.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError, OverflowError) as error:
            raise UserError("not a readable safetensors file", where=path, found=error) from error

    def like(self, other: "StateFile") -> "StateFile":
        """Return this file, with the other's entries where they are equal: a thousand files then hold them once."""
        if self.entries == other.entries:
            self.entries = other.entries
        return self

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Return entries ``start`` to ``stop`` of a flattened tensor, one-dimensional.

        Raises:
            UserError: If the file ends before them.
        """
        entry = self.entries[name]
        stop = entry.numel if stop is None else stop
        if stop <= start:
            return torch.empty(0, dtype=entry.dtype)
        size = (stop - start) * entry.dtype.itemsize
        data = bytearray(size)
        _read_into(self.path, memoryview(data), entry.offset + start * entry.dtype.itemsize)
        return torch.frombuffer(data, dtype=entry.dtype)


def _read_into(path: Path, data: memoryview, offset: int) -> None:
    """Fill ``data`` from a place in a file; without Python's buffers, as a thousand updates mean a million reads.

    Raises:
        UserError: If the file ends too early.
    """
    file, done = os.open(path, os.O_RDONLY), 0
    try:
        while done < len(data):
            found = os.preadv(file, [data[done:]], offset + done)  # at most 2 GB at once
            if not found:
                raise UserError("a file of weights ends too early", where=path, expected=len(data), found=done)
            done += found
    finally:
        os.close(file)


class Layout:
    """Where the tensors of a new file are, for any number of files with the same tensors.

    Args:
        tensors: Name -> type and shape.

    Attributes:
        names: The tensors' names in order.
        order: The same in the order of the file.
        entries: Name -> its type, shape and place.
        header: What a file begins with; it ends in the tensors' digest, 64 zeros until that is known.
        bytes: Of all tensors.
    """

    def __init__(self, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> None:
        self.names, self.bytes = sorted(tensors), 0
        begin, values = {}, {}
        self.order = sorted(tensors, key=lambda name: (_RANK[tensors[name][0]], name))
        for name in self.order:
            dtype, shape = tensors[name]
            begin[name], end = self.bytes, self.bytes + math.prod(shape) * dtype.itemsize
            values[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [self.bytes, end]}
            self.bytes = end
        text = json.dumps(
            {"__metadata__": {"digest": UNKNOWN}, **values}, ensure_ascii=False, separators=(",", ":")
        ).encode()
        text += b" " * (-len(text) % 8)
        self.header = len(text).to_bytes(8, "little") + text
        self.entries = {name: Entry(*tensors[name], offset=len(self.header) + begin[name]) for name in self.names}

    def header_with(self, digest: str) -> bytes:
        """Return the header of a file whose tensors have this digest."""
        return self.header.replace(UNKNOWN.encode(), digest.encode(), 1)


def write_state(path: Path, state: Mapping[str, Tensor], digest: str) -> int:
    """Write a safetensors file from the tensors' own memory; ``safetensors.torch.save`` makes two copies of it.

    Args:
        path: The new file.
        state: Contiguous tensors on the CPU.
        digest: Theirs, as ``tasks.core.store.state_digest``.

    Returns:
        The bytes of all tensors.
    """
    layout = Layout({name: (value.dtype, tuple(value.shape)) for name, value in state.items()})
    with path.open("wb") as file:
        file.write(layout.header_with(digest))
        for name in layout.order:
            file.write(_memory(state[name]))
    return layout.bytes


def _memory(values: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor."""
    data: memoryview = values.reshape(-1).view(torch.uint8).numpy().data
    return data


class StateWriter:
    """A safetensors file that is written in ranges of entries: tensors in name order, each from its first entry on.

    Args:
        path: The new file.
        layout: Its tensors.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        self._expected = iter(layout.names)
        self._digest, self._name, self._done = hashlib.sha256(), "", 0
        path.write_bytes(layout.header)
        os.truncate(path, len(layout.header) + layout.bytes)

    def write(self, name: str, values: Tensor) -> None:
        """Append entries to a tensor; the one before must be complete."""
        if name != self._name:
            self._next(name)
        entry = self.layout.entries[name]
        data = _memory(values.detach().contiguous())
        assert values.dtype == entry.dtype and self._done + values.numel() <= entry.numel, name
        self._digest.update(data)
        with self.path.open("r+b") as file:
            file.seek(entry.offset + self._done * entry.dtype.itemsize)
            file.write(data)
        self._done += values.numel()

    def _next(self, name: str) -> None:
        """Begin a tensor."""
        self._require_complete()
        assert next(self._expected, None) == name, "tensors are written in name order"
        entry = self.layout.entries[name]
        self._digest.update(f"{name}|{entry.dtype}|{entry.shape}|".encode())  # as tasks.core.store.state_digest
        self._name, self._done = name, 0

    def _require_complete(self) -> None:
        assert not self._name or self._done == self.layout.entries[self._name].numel, f"{self._name} is not complete"

    def finish(self) -> str:
        """Complete the file and return its tensors' digest, as ``tasks.core.store.state_digest``."""
        assert next(self._expected, None) is None, "tensors are missing"
        self._require_complete()
        digest = self._digest.hexdigest()
        with self.path.open("r+b") as file:
            file.write(self.layout.header_with(digest))
        return digest
