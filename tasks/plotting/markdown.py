"""Markdown tables of text that may come from users' files."""

import re
from collections.abc import Iterable, Sequence

from tasks.core.names import visible

_EMPHASIS = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word, _ is no emphasis


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with every cell escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(safe_cell(cell) for cell in line) + " |" for line in lines)


def safe_cell(text: object) -> str:
    """Escape external text for a table: one line, only visible characters, no Markdown or HTML syntax."""
    line = visible(" ".join(str(text).split()))
    for character, escaped in (
        ("\\", "\\\\"),
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("|", "\\|"),
        ("*", "\\*"),
        ("`", "\\`"),
        ("[", "\\["),
        ("~", "\\~"),
    ):
        line = line.replace(character, escaped)
    return _EMPHASIS.sub(r"\_", line)
