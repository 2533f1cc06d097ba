"""One process at a time at one place: the others wait, say for what, and then find what the first one made."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from models.errors import UserError


@contextlib.contextmanager
def one_at_a_time(place: Path, what: str, nested: str = "") -> Iterator[bool]:
    """Holds ``place`` for the duration; another process that asks for it waits until this one ends, however it ends.

    The lock is the operating system's, on the file ``.<name>.lock`` beside the place, so that what a dead process
    left is no obstacle. ``.<name>.holder`` says who has it, for the message of those that wait.

    Args:
        place: The file or folder; it need not exist.
        what: What is done there, as ``prepares data``; for the others' message.
        nested: Error message for a place that this very process holds already, where waiting could be for ever;
            "" to wait all the same (for another thread).

    Yields:
        Whether this process had to wait, so that the work may be done already.

    Raises:
        UserError: With ``nested``, if this process holds the place.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    lock, holder = (place.with_name(f".{place.name}.{kind}") for kind in ("lock", "holder"))
    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
        waited = False
    except Timeout:
        found = _holder(holder)
        if nested and found.startswith(f"process {os.getpid()} "):
            raise UserError(nested, where=place, hint="wait for it") from None
        logging.getLogger(__name__).warning("waiting for %s: %s; its result will be used", found, place)
        held.acquire()
        waited = True
    try:
        holder.write_text(f"process {os.getpid()} that {what} since {time.strftime('%H:%M:%S')}", encoding="utf-8")
        yield waited
    finally:
        holder.unlink(missing_ok=True)
        held.release()


def _holder(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8") or "another process"
    except (OSError, UnicodeDecodeError):  # it is about to say so, or has just ended
        return "another process"
