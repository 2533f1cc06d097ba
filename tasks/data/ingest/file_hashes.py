"""Hashes of files, cached by size and times, so that an unchanged file is not read again."""

import contextlib
import hashlib
import json
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.files import write_text

UNREADABLE = "unreadable"  # in place of a sha256
MIN_AGE_NS = 2_000_000_000  # a file written more recently may change again without a change of its times
_MAX_THREADS = 4


@dataclass(frozen=True)
class Status:
    """The file system's record of a file: where it is, and what changes when it is written."""

    path: Path
    size: int
    times: tuple[int, int]
    regular: bool


def file_status(path: Path) -> Status | None:
    """Return the status, ``None`` if there is no such file; a dangling link has one."""
    try:
        found = path.stat()
    except OSError:
        return Status(path, 0, (0, 0), False) if path.is_symlink() else None
    return Status(path, found.st_size, (found.st_mtime_ns, found.st_ctime_ns), stat.S_ISREG(found.st_mode))


class HashCache:
    """The hashes of a source's files by size and times, in one JSON file.

    Args:
        folder: The folder of such files; ``None``: no cache.
        where: The source's path.
    """

    def __init__(self, folder: Path | None, where: str) -> None:
        name = hashlib.sha256(where.encode(errors="surrogateescape")).hexdigest()[:16]
        self._file = folder and folder / f"{name}.json"
        self._began, self._new = time.time_ns(), False
        self._known: dict[str, list[Any]] = {}
        if self._file is not None and self._file.is_file():
            try:
                known = json.loads(self._file.read_text(encoding="utf-8"))
                self._known = known if isinstance(known, dict) else {}
            except (OSError, ValueError):
                self._known = {}

    def get(self, status: Status) -> str | None:
        """Return the file's hash if it is known and the file has not changed since."""
        match self._known.get(str(status.path)):
            case [int() as size, int() as modified, int() as changed, str() as digest]:
                return digest if (size, (modified, changed)) == (status.size, status.times) else None
        return None

    def put(self, status: Status, digest: str) -> None:
        """Cache the hash of a file that had this status when it was read."""
        if max(status.times) < self._began - MIN_AGE_NS and self.get(status) != digest:
            self._known[str(status.path)] = [status.size, *status.times, digest]
            self._new = True

    def save(self) -> None:
        """Write new entries; do nothing without a folder to write to."""
        if self._file is None or not self._new or not self._file.parent.parent.is_dir():
            return
        with contextlib.suppress(OSError, ValueError):  # a cache only
            write_text(self._file, json.dumps(self._known))


def hash_files(files: Mapping[str, Status], hashes: HashCache) -> dict[str, str]:
    """Return name -> sha256, or ``UNREADABLE``; files with a cached hash are not read."""

    def digest(status: Status) -> str:
        if (known := hashes.get(status)) is not None:
            return known
        try:
            if not status.regular:  # reading a pipe would never end
                return UNREADABLE
            with status.path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return UNREADABLE
        hashes.put(status, found)
        return found

    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        return dict(zip(files, pool.map(digest, files.values()), strict=True))
