"""Folders for what is made of something from outside: called as that is, never those of something else of its name."""

import hashlib
from pathlib import Path

from tasks.core.names import file_name

OWNER = "source.txt"  # in the folder: what it is about
_DIGITS = 8


def place_for(parent: Path, name: str, owner: str) -> Path:
    """``parent/<name>``, or with some digits of ``owner`` where that is about something else.

    Args:
        parent: Where such folders lie.
        name: What a person calls it: the name of a file or folder.
        owner: What tells it from all others of its name: its absolute path.
    """
    plain = parent / file_name(name)
    if _owner(plain) in ("", _line(owner)):
        return plain
    digits = hashlib.sha256(_line(owner).encode()).hexdigest()[:_DIGITS]
    return parent / file_name(f"{name}-{digits}")


def claim(folder: Path, owner: str) -> None:
    """Says in a folder what it is about."""
    (folder / OWNER).write_text(f"{_line(owner)}\n", encoding="utf-8")


def table_folder(parent: Path, table: str, name: str, scale: str) -> Path:
    """The folder of a table's results, made and claimed.

    Args:
        parent: Where such folders lie.
        table: A shipped table's name, or the path of a file.
        name: The table's name.
        scale: The scale.
    """
    file = Path(table).suffix in (".yaml", ".yml")
    owner = str(Path(table).resolve()) if file else f"the shipped table {name}"
    folder = place_for(parent, f"{name}-{scale}", owner)
    folder.mkdir(parents=True, exist_ok=True)
    claim(folder, owner)
    return folder


def _line(owner: str) -> str:
    """One line of text for any path, also for one that is not UTF-8."""
    return owner.encode("unicode_escape", "surrogatepass").decode()


def _owner(folder: Path) -> str:
    try:
        return (folder / OWNER).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, ValueError):
        return ""
