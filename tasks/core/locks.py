"""One process at a time at one place: the others wait, say for what, and then find what the first one made."""

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from models.errors import UserError

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


@contextlib.contextmanager
def one_at_a_time(
    place: Path, what: str, refusal: str = "", hint: str = "wait for it", wait: bool = True, file: Path | None = None
) -> Iterator[bool]:
    """Holds ``place`` for the duration; another process that asks for it waits until this one ends, however it ends.

    The lock is the operating system's, on the file ``.<name>.lock`` beside the place: what a dead process left is no
    obstacle. The file says who holds it, for the message of those that wait, and is removed at the end.

    Args:
        place: The file or folder; it need not exist.
        what: What is done there, as ``prepares data``; for the others' message.
        refusal: The error where nobody shall wait, or would wait for ever: for this very process; "" to wait all the
            same (for another thread).
        hint: The error's hint.
        wait: Whether to wait for another process.
        file: A lock file of its own, which stays, with its times.

    Yields:
        Whether this process had to wait, so that the work may be done already.

    Raises:
        UserError: With ``refusal``; or the holder is the process that started this one.
    """
    lock = file or place.with_name(f".{place.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    held, waited = _lock(lock, wait=False), False
    if held is None:
        found = _holder(lock)
        if refusal and (not wait or found.startswith(f"process {os.getpid()} ")):
            raise UserError(refusal, where=place, found=found, hint=hint)
        if found.startswith(f"process {os.getppid()} "):
            # A worker that runs its program from the top again; both would wait for each other.
            what, hint = (
                "a process would wait for the one that started it",
                'put the call under if __name__ == "__main__":',
            )
            raise UserError(what, where=place, found=found, hint=hint)
        logging.getLogger(__name__).warning("waiting for %s: %s; its result will be used", found, place)
        held, waited = _lock(lock, wait=True), True
    assert held is not None
    try:
        before = os.fstat(held)
        os.ftruncate(held, 0)
        os.pwrite(held, f"process {os.getpid()} that {what} since {time.strftime('%H:%M:%S')}".encode(), 0)
        if file is not None:
            os.utime(held, ns=(before.st_atime_ns, before.st_mtime_ns))
        yield waited
    finally:
        if file is None:
            lock.unlink(missing_ok=True)  # while it is held: who waits for it sees that it is gone, and makes another
        os.close(held)


def _lock(path: Path, wait: bool) -> int | None:
    """An open file that is locked, ``None`` when another one holds it and this shall not wait."""
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
