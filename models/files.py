"""Atomic file writes: files are replaced as a whole, never written in place.

A file may be a link into DVC's cache (``cache.type hardlink,symlink``) or have other hard links: writing into it would
change those as well, and fails if the cache is read-only.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from models.errors import UserError

_WRITABLE = 0o222
_PART = 1 << 20


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces ``path`` if the block succeeds.

    A link at ``path`` is replaced, not followed. A file whose content would not change keeps its time stamp. A missing
    folder is created. The temporary name ends in ``.tmp``, which git and DVC ignore.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name[:40]}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        yield beside
        if not _same(beside, path):
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _same(new: Path, old: Path) -> bool:
    """Return whether ``old`` exists with the content of ``new``; time stamps are not compared."""
    if old.is_symlink() or not old.is_file() or old.stat().st_size != new.stat().st_size:
        return False
    try:
        with new.open("rb") as one, old.open("rb") as other:
            return all(part == other.read(_PART) for part in iter(lambda: one.read(_PART), b""))
    except OSError:  # unreadable, but it can be replaced
        return False


def stamp(path: Path) -> tuple[int, ...]:
    """Return a file's inode, size and times, which change when it is written; empty if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with replacing_file(path) as beside:
        beside.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def copy_file(source: Path, target: Path) -> None:
    """Copy the content of a file to a new file at ``target``."""
    with replacing_file(target) as beside:
        shutil.copyfile(source, beside)


def edit_text(path: Path, text: str) -> None:
    """Write a user's file, such as a settings file, and keep its permissions.

    A link is followed, as by an editor, unless its target is read-only, as in DVC's cache.
    """
    target = path.resolve() if path.is_symlink() and path.exists() else path
    if target is not path and not target.stat().st_mode & _WRITABLE:
        target = path
    mode = target.stat().st_mode & 0o777 if target.is_file() and not target.is_symlink() else None
    with replacing_file(target) as beside:
        beside.write_bytes(text.encode("utf-8"))
        if mode is not None and mode & _WRITABLE:
            beside.chmod(mode)


def remove(path: Path) -> None:
    """Remove a file, a folder with its content, or a link (not its target), if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(out: Path, marker: str) -> Iterator[Path]:
    """Yield a new folder that replaces ``out`` if the block succeeds; otherwise ``out`` is left unchanged.

    Args:
        out: The folder to create or replace.
        marker: File that identifies an existing ``out`` as written by us; any other non-empty folder is refused.

    Raises:
        UserError: ``out`` exists and has other content.
    """
    if out.exists() and not (out.is_dir() and ((out / marker).is_file() or not any(out.iterdir()))):
        raise UserError(
            "the output folder holds something else and would be replaced",
            where=out,
            expected=f"no folder, an empty one, or one with a {marker}",
            hint="name another folder, or remove this one",
        )
    partial, old = (out.with_name(f".{out.name}.{kind}") for kind in ("partial", "old"))
    if old.exists() and not out.exists():
        old.rename(out)  # the process was killed between the two renames below
    for leftover in (partial, old):
        remove(leftover)
    partial.mkdir(parents=True)
    try:
        yield partial
        if out.exists():
            out.rename(old)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    with contextlib.suppress(OSError):  # the new folder is in place; the next call tries again
        remove(old)
