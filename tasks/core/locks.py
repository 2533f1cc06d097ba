"""Locks between processes and threads: one at a time works at a place; the others wait, or are refused."""

import contextlib
import errno
import fcntl
import logging
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from models.errors import UserError

FOREVER = math.inf
POLL_S = 0.1  # between two attempts, where the wait is limited
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextlib.contextmanager
def locked(
    place: Path,
    what: str,
    *,
    wait_s: float = FOREVER,
    refusal: str = "",
    hint: str = "wait for it",
    file: Path | None = None,
) -> Iterator[bool]:
    """Hold ``place`` for the duration of the block.

    The lock is the operating system's and ends with its process, so a dead process never blocks anything. The lock
    file contains who holds it, for the messages of the others.

    Args:
        place: The file or folder; it need not exist.
        what: What is done there, as ``prepares data``; for the others' messages.
        wait_s: Seconds to wait for another holder. Without a limit, a warning names the holder.
        refusal: The error after ``wait_s``. Without a limit: the error if this very process is the holder, which
            would wait for ever; "" if the holder is another thread that will end.
        hint: The error's hint.
        file: The lock file, which stays, with its times. Default: ``.<name>.lock`` beside the place, removed at the
            end.

    Yields:
        Whether this process had to wait without a limit, so that the work may be done already.

    Raises:
        UserError: With ``refusal``; or the holder is the process that started this one.
    """
    lock = file or place.with_name(f".{place.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _try_for(lock, 0.0 if wait_s == FOREVER else wait_s)
    waited = descriptor is None
    if descriptor is None:
        holder = _holder(lock)
        if refusal and (wait_s < FOREVER or holder.startswith(f"process {os.getpid()} ")):
            raise UserError(refusal, where=place, found=holder, hint=hint)
        descriptor = _wait_for(lock, place, holder)
    try:
        before = os.fstat(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} that {what} since {time.strftime('%H:%M:%S')}".encode(), 0)
        if file is not None:
            os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
        yield waited
    finally:
        if file is None:
            lock.unlink(missing_ok=True)  # while it is locked: waiting processes notice, and create another
        os.close(descriptor)


def _try_for(path: Path, seconds: float) -> int | None:
    """Return an open file that is locked, ``None`` when another one still holds it after so many seconds."""
    end = time.monotonic() + seconds
    while (descriptor := _lock(path, wait=False)) is None and time.monotonic() < end:
        time.sleep(POLL_S)
    return descriptor


def _wait_for(lock: Path, place: Path, holder: str) -> int:
    """Return an open file that is locked, once its holder is done.

    Raises:
        UserError: If the holder is the process that started this one.
    """
    if holder.startswith(f"process {os.getppid()} "):
        # A worker that runs its program from the top again; both would wait for each other.
        raise UserError(
            "a process would wait for the one that started it",
            where=place,
            found=holder,
            hint='put the call under if __name__ == "__main__":',
        )
    logging.getLogger(__name__).warning("waiting for %s: %s; its result will be used", holder, place)
    descriptor = _lock(lock, wait=True)
    assert descriptor is not None
    return descriptor


def _lock(path: Path, wait: bool) -> int | None:
    """Return an open file that is locked, ``None`` when another one holds it and this shall not wait."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(file)
                raise
            logging.getLogger(__name__).warning("no locks in %s: start nothing twice at once there", path.parent)
            return file
        except BaseException:  # an interrupt while waiting
            os.close(file)
            raise
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # its holder has removed it


def _holder(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8") or "another process"
    except (OSError, UnicodeDecodeError):  # it is about to say so, or has just ended
        return "another process"
