"""One process at a time works on a run, and finds nothing half written in its folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tasks.core.locks import one_at_a_time

LOCK = ".lock"  # in a run's folder; its time is when the run was worked on last


@contextlib.contextmanager
def locked(root: Path, hint: str = "wait for it", wait: bool = False) -> Iterator[None]:
    """One process at a time works on a run; whatever writes into its folder does so under this lock.

    Args:
        root: The run's folder.
        hint: What to do when another one does.
        wait: Whether to wait for another process instead.

    Raises:
        UserError: If another one does and this shall not wait.
    """
    refusal = "another process is working on this run"
    with one_at_a_time(root, "works on this run", refusal, hint, wait, root / LOCK):
        yield


def remove_unfinished(root: Path) -> None:
    """Removes what a killed process had not written to its end; nobody else works on the run now."""
    for path in root.rglob("*.tmp"):
        if path.is_file() or path.is_symlink():
            path.unlink()
