"""Lists the files below a folder."""

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

#: Files that mark folders written by this program, which are never searched for images.
RUNS_MARKER = ".fedscene-runs"
_OWN_OUTPUTS = (
    frozenset({RUNS_MARKER}), frozenset({"dataset.json", "samples.parquet"}),
    frozenset({"clients.json", "clients.parquet"}),
)  # fmt: skip


def walk_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield every file below ``root`` and its name relative to it; linked folders are followed, each real one once."""
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        if is_own_output(files):
            folders.clear()
            continue
        folders.sort()
        relative = Path(folder).relative_to(root).as_posix()
        prefix = "" if relative == "." else f"{relative}/"
        for file in files:
            # Names that are not UTF-8 (GBK out of an old zip file) cannot go into Parquet as they are.
            yield Path(folder, file), os.fsencode(prefix + file).decode("utf-8", "backslashreplace")


def is_own_output(files: Collection[str]) -> bool:
    """Check whether a folder with these files was written by this program: runs, a data set, a partition."""
    return any(marker.issubset(files) for marker in _OWN_OUTPUTS)


def is_special(path: Path) -> bool:
    """Check for a pipe or device, which would never end when it is read; a dangling link is none."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
