"""The files of a run: safetensors states and JSON records under one root, a folder or any fsspec URL.

Everything appears whole or not at all: files are written beside their place and renamed into it. A name is
relative to the root, so a run can be moved or copied.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from models.errors import UserError
from tasks.records import ModelRef

if TYPE_CHECKING:
    import torch


def digest_of(*parts: Any) -> str:
    """sha256 of the canonical JSON of ``parts``, 64 hex digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def state_digest(state: "Mapping[str, torch.Tensor]") -> str:
    """sha256 over the tensors in name order: name, dtype, shape and bytes. Independent of the file format."""
    import torch

    total = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        total.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def state_bytes(state: "Mapping[str, torch.Tensor]") -> int:
    """Bytes of all tensors: what a transfer of the state costs, without any header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


class Store:
    """Reads and writes the files of one run.

    Args:
        root: A folder or an fsspec URL (``s3://bucket/run``, ``memory://run``).
    """

    def __init__(self, root: str | Path) -> None:
        self.fs, path = fsspec.core.url_to_fs(str(root))
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.root = str(Path(path).resolve()) if self.is_local else path.rstrip("/")

    def path(self, name: str) -> str:
        """The full path of ``name`` in this store's file system."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str) -> bool:
        """Whether the file or folder is there."""
        return bool(self.fs.exists(self.path(name)))

    def names(self, folder: str) -> list[str]:
        """Sorted names directly in ``folder``; empty when the folder is missing."""
        if not self.exists(folder):
            return []
        return sorted(Path(entry).name for entry in self.fs.ls(self.path(folder), detail=False))

    def delete(self, name: str) -> None:
        """Removes a file or folder if it is there."""
        if self.exists(name):
            self.fs.rm(self.path(name), recursive=True)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Writes a file whole: on a local disk by rename, elsewhere by one put."""
        final = self.path(name)
        if not self.is_local:
            self.fs.pipe_file(final, data)
            return
        Path(final).parent.mkdir(parents=True, exist_ok=True)
        beside = f"{final}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            Path(beside).write_bytes(data)
            Path(beside).replace(final)
        finally:
            Path(beside).unlink(missing_ok=True)

    def write_json(self, name: str, value: Any) -> None:
        """Writes ``value`` as indented JSON."""
        self.write_bytes(name, (json.dumps(value, indent=1, sort_keys=True, default=str) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Reads a JSON file that holds a mapping.

        Raises:
            UserError: If the file is missing, is not JSON, or holds something else.
        """
        where = self.path(name)
        try:
            value = json.loads(self.fs.cat_file(where))
        except FileNotFoundError as error:
            raise UserError("a file of the run is missing", where=where) from error
        except (OSError, ValueError) as error:  # no JSON, no UTF-8, a folder
            raise UserError("a file of the run is damaged", where=where, found=error, hint="remove it") from error
        if not isinstance(value, dict):
            found = type(value).__name__
            raise UserError("a file of the run is damaged", where=where, expected="a mapping", found=found)
        return value

    def put_state(self, name: str, state: "Mapping[str, torch.Tensor]") -> ModelRef:
        """Writes tensors as safetensors and returns their reference."""
        from safetensors.torch import save

        flat = {key: value.detach().cpu().contiguous() for key, value in state.items()}
        ref = ModelRef(name, state_digest(flat), state_bytes(flat))
        self.write_bytes(name, save(flat, metadata={"digest": ref.digest}))
        return ref

    def get_state(self, ref: ModelRef, verify: bool = True) -> "dict[str, torch.Tensor]":
        """Reads all tensors of a reference.

        Raises:
            UserError: If the file is missing, or its content is not what the reference says.
        """
        with self.open_state(ref) as reader:
            state = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118 - not a mapping
        if verify and state_digest(state) != ref.digest:
            raise UserError("weights do not match their digest", where=self.path(ref.uri), expected=ref.digest)
        return state

    @contextlib.contextmanager
    def open_state(self, ref: ModelRef) -> Iterator[Any]:
        """Opens a state for reading tensor by tensor (``keys()``, ``get_tensor(name)``, ``get_slice(name)``).

        Raises:
            UserError: If the file is missing or is no safetensors file.
        """
        from safetensors import SafetensorError, safe_open

        with self.local(ref.uri) as path:
            try:
                reader = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise UserError("not a readable safetensors file", where=self.path(ref.uri), found=error) from error
            with reader as opened:
                yield opened

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A local path of a file of the store; a remote file is fetched for the duration."""
        if not self.exists(name):
            raise UserError("a file of the run is missing", where=self.path(name))
        if self.is_local:
            yield Path(self.path(name))
            return
        with tempfile.TemporaryDirectory(prefix="fedscene-") as folder:
            target = Path(folder) / Path(name).name
            self.fs.get_file(self.path(name), str(target))
            yield target

    def holds(self, ref: ModelRef) -> bool:
        """Whether the state is there and verifies."""
        if not self.exists(ref.uri):
            return False
        try:
            self.get_state(ref)
        except UserError:
            return False
        return True

    def finish_folder(self, working: str, final: str) -> None:
        """Moves a finished working folder to its final name; on a local disk that is one rename."""
        if self.is_local:
            Path(self.path(working)).replace(self.path(final))
        else:
            self.fs.mv(self.path(working), self.path(final), recursive=True)
