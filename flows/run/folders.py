"""Output folders named after their source; two sources of the same name get two folders."""

import hashlib
from pathlib import Path

from tasks.core.names import file_name

SOURCE_FILE = "source.txt"  # in an output folder: the source that it belongs to
_DIGITS = 8


def unique_folder(parent: Path, name: str, source: str) -> Path:
    """Return ``parent/<name>``, with a few digits of the source's digest if that folder belongs to another source.

    Args:
        parent: Folder of all such folders.
        name: Name of the source file or folder.
        source: Absolute path of the source, which distinguishes it from others of the same name.
    """
    plain = parent / file_name(name)
    if _recorded_source(plain) in ("", _line(source)):
        return plain
    digits = hashlib.sha256(_line(source).encode()).hexdigest()[:_DIGITS]
    return parent / file_name(f"{name}-{digits}")


def record_source(folder: Path, source: str) -> None:
    """Write into an output folder which source it belongs to."""
    (folder / SOURCE_FILE).write_text(f"{_line(source)}\n", encoding="utf-8")


def table_folder(parent: Path, table: str, name: str, scale: str) -> Path:
    """Create and return the folder of a table's results.

    Args:
        parent: Folder of all tables' results.
        table: A shipped table's name, or the path of a file.
        name: The table's name.
        scale: small or full.
    """
    file = Path(table).suffix in (".yaml", ".yml")
    source = str(Path(table).resolve()) if file else f"the shipped table {name}"
    folder = unique_folder(parent, f"{name}-{scale}", source)
    folder.mkdir(parents=True, exist_ok=True)
    record_source(folder, source)
    return folder


def _line(source: str) -> str:
    """Return one line of text for any path, even one that is not UTF-8."""
    return source.encode("unicode_escape", "surrogatepass").decode()


def _recorded_source(folder: Path) -> str:
    try:
        return (folder / SOURCE_FILE).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, ValueError):
        return ""
