"""The files of a run: safetensors states and JSON records under one root, a folder or any fsspec URL.

Everything appears whole or not at all: files are written beside their place and renamed into it. A name is
relative to the root, so a run can be moved or copied, and never leads out of it: parts that come from outside go
through ``tasks.core.names.file_name``, and the store refuses what is left.
"""

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from models.errors import UserError
from models.files import replacing_file, stamp, write_bytes
from tasks.core.json_files import damaged, parse_json
from tasks.core.names import file_name, visible
from tasks.core.records import ModelRef

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
    """Return the bytes of all tensors: what a transfer of the state costs, without any header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\\:]|//|^/|/$|(^|/)\.{1,2}(/|$)")  # what could lead out of the root


def client_folder(client: str) -> str:
    """Return the folder of a client's private state in the store; its id may be any text from outside."""
    return f"clients/{file_name(client)}"


class Store:
    """Reads and writes the files of one run.

    A name is relative, with ``/`` between its parts. Every method raises ``UserError`` for a name that leaves the root:
    by its parts, or on a local disk by a symbolic link.

    Args:
        root: A folder or an fsspec URL (``s3://bucket/run``, ``memory://run``).
        linked_files: Whether files, not folders, may be links to other places, as DVC makes them to its cache.
    """

    def __init__(self, root: str | Path, linked_files: bool = False) -> None:
        self.fs, path = fsspec.core.url_to_fs(str(root))
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.root = str(Path(path).resolve()) if self.is_local else path.rstrip("/")
        self.linked_files = linked_files

    def path(self, name: str) -> str:
        """Return the full path of ``name``; the file itself may be a link, its folders may not."""
        if not name:
            return self.root
        if _NOT_IN_NAMES.search(name):
            raise _outside(self.root, name)
        if self.is_local and not self._holds_path(Path(self.root, name).parent):
            raise _outside(self.root, name)
        return f"{self.root}/{name}"

    def _read_path(self, name: str) -> str:
        """Return the full path of a file to read: neither it nor its folders may lead out of the root."""
        where = self.path(name)
        if self.is_local and not self.linked_files and not self._holds_path(Path(where)):
            raise _outside(self.root, name)
        return where

    def _holds_path(self, path: Path) -> bool:
        """Tell whether a local path below the root is within it, links followed; circular links are no error."""
        place = self.root
        for part in path.relative_to(self.root).parts:
            place = f"{place}/{part}"
            if os.path.islink(place):  # noqa: PTH114 - in every access to a file, and a Path costs more than the check
                return Path(os.path.realpath(path)).is_relative_to(self.root)
        return True

    def stamp(self, name: str) -> tuple[int, ...]:
        """Return what changes when a local file is written, nothing if there is none (``models.files.stamp``)."""
        return stamp(Path(self._read_path(name)))

    def exists(self, name: str) -> bool:
        """Tell whether the file or folder exists."""
        return bool(self.fs.exists(self._read_path(name)))

    def names(self, folder: str) -> list[str]:
        """Sorted names directly in ``folder``; empty when the folder is missing."""
        if not self.exists(folder):
            return []
        return sorted(Path(entry).name for entry in self.fs.ls(self._read_path(folder), detail=False))

    def delete(self, name: str) -> None:
        """Remove a file or folder if it exists; of a link only the link."""
        where = self.path(name)
        if self.is_local:
            if Path(where).is_symlink() or self.fs.exists(where):
                self.fs.rm(where, recursive=True)
        elif self.fs.exists(where):
            self.fs.rm(_literal(where), recursive=True)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file atomically: on a local disk by rename, elsewhere by one put. An identical file stays."""
        final = self.path(name)
        if not self.is_local:
            self.fs.pipe_file(final, data)
            return
        write_bytes(Path(final), data)

    def write_json(self, name: str, value: Any) -> None:
        """Write ``value`` as indented JSON."""
        self.write_bytes(name, (json.dumps(value, indent=1, sort_keys=True, default=str) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file that holds a mapping.

        Raises:
            UserError: If the file is missing, is not JSON, holds something else, or is of a later release.
        """
        where, what = self._read_path(name), "a file of the run"
        try:
            content = self.fs.cat_file(where)
        except FileNotFoundError as error:
            raise UserError(f"{what} is missing", where=where) from error
        except OSError as error:
            raise damaged(where, error, "remove it", what) from error
        value: dict[str, Any] = parse_json(content, where, "remove it", what=what)
        return value

    def put_state(self, name: str, state: "Mapping[str, torch.Tensor]", digest: str | None = None) -> ModelRef:
        """Write tensors as safetensors and return their reference.

        Args:
            name: The file's name.
            state: The tensors, on any device.
            digest: Theirs, where it is known.
        """
        from tasks.core.state_stream import write_state

        flat = {key: value.detach().cpu().contiguous() for key, value in state.items()}
        digest = digest or state_digest(flat)
        with self.new_file(name) as path:
            return ModelRef(name, digest, write_state(path, flat, digest))

    def get_state(self, ref: ModelRef, verify: bool = True) -> "dict[str, torch.Tensor]":
        """Read all tensors of a reference.

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
        """Open a state for reading tensor by tensor (``keys()``, ``get_tensor(name)``, ``get_slice(name)``).

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
        """Yield a local path of a file of the store; a remote file is fetched for the duration."""
        if not self.exists(name):
            raise UserError("a file of the run is missing", where=self.path(name))
        if self.is_local:
            yield Path(self._read_path(name))
            return
        with tempfile.TemporaryDirectory(prefix="fedscene-") as folder:
            target = Path(folder) / Path(name).name
            self.fs.get_file(self.path(name), str(target))
            yield target

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Yield a local path to write to; the file has its place in the store if the block succeeds."""
        if self.is_local:
            with replacing_file(Path(self.path(name))) as beside:
                yield beside
            return
        with tempfile.TemporaryDirectory(prefix="fedscene-") as folder:
            target = Path(folder) / "new"
            yield target
            self.fs.put_file(str(target), self.path(name))

    def holds(self, ref: ModelRef) -> bool:
        """Tell whether the state exists and verifies."""
        if not self.exists(ref.uri):
            return False
        try:
            self.get_state(ref)
        except UserError:
            return False
        return True

    def finish_folder(self, working: str, final: str) -> None:
        """Move a finished working folder to its final name; on a local disk that is one rename."""
        if self.is_local:
            Path(self.path(working)).replace(self.path(final))
        else:
            self.fs.mv(_literal(self.path(working)), self.path(final), recursive=True)


def _literal(path: str) -> str:
    """Return a pattern that fits only this path: fsspec's removal reads ``*``, ``?`` and ``[`` as patterns."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _outside(root: str, name: str) -> UserError:
    """Return the error for a name that is not within the root."""
    return UserError(
        "a file's name leads out of the run's folder",
        where=root,
        expected="a relative name without '..', ':' or '\\', and no symbolic link to another place",
        found=visible(name)[:200],
        hint="remove the link, or the run's folder if you did not make it",
    )
