"""The lock of a run: one process at a time works on it, and finds nothing half written in its folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tasks.core.locks import FOREVER, locked

LOCK = ".lock"  # in a run's folder; its time is when the run was worked on last


@contextlib.contextmanager
def locked_run(root: Path, hint: str = "wait for it", wait: bool = False) -> Iterator[None]:
    """Hold a run; whatever writes into its folder does so under this lock.

    Args:
        root: The run's folder.
        hint: What to do when another process holds it.
        wait: Whether to wait for another process instead.

    Raises:
        UserError: If another process holds it and this shall not wait, or this process holds it already.
    """
    refusal, wait_s = "another process is working on this run", FOREVER if wait else 0.0
    with locked(root, "works on this run", wait_s=wait_s, refusal=refusal, hint=hint, file=root / LOCK):
        yield


def remove_unfinished(root: Path) -> None:
    """Remove what a killed process had not written completely. The caller holds the run."""
    for path in root.rglob("*.tmp"):
        if path.is_file() or path.is_symlink():
            path.unlink()
