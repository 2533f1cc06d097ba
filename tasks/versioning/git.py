"""git, called as a program to read commits. Nothing here changes a repository."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 60.0


def run_git(root: Path, *arguments: str) -> str | None:
    """Return git's output without surrounding blanks; ``None`` if git fails or is not installed."""
    out = _git_bytes(root, arguments, b"")
    return None if out is None else out.decode(errors="replace").strip()


def git_error(root: Path, *arguments: str) -> str:
    """Return git's error message in English, the first line without "fatal:"; "" if git does not fail."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TIMEOUT_S, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {TIMEOUT_S:g} s"
    except OSError as error:
        return str(error.strerror)
    lines = done.stderr.decode(errors="replace").strip().splitlines() if done.returncode else []
    return lines[0].removeprefix("fatal: ") if lines else ""


def git_files(root: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of files in commits, by one call of git; missing files are left out.

    Args:
        root: The folder that paths are relative to.
        names: ``<commit>:./<path>`` each.
    """
    data = _git_bytes(root, ["cat-file", "--batch"], "".join(f"{name}\n" for name in names).encode()) or b""
    out: dict[str, bytes] = {}
    at = 0
    for name in names:
        head, at = data[at : data.index(b"\n", at)], data.index(b"\n", at) + 1
        words = head.split(b" ")
        # "<id> blob <size>", then the content and a line end; "<name> missing" has none
        if len(words) == 3 and words[2].isdigit():
            if words[1] == b"blob":
                out[name] = data[at : at + int(words[2])]
            at += int(words[2]) + 1
    return out


def _git_bytes(root: Path, arguments: Sequence[str], given: bytes) -> bytes | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
