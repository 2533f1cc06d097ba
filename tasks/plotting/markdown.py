"""Markdown tables of text that may come from outside."""

import re
from collections.abc import Iterable, Sequence

from tasks.core.names import visible

_EDGE_LINES = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # within a word _ is no emphasis


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; every cell is made safe."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(safe_cell(cell) for cell in line) + " |" for line in lines)


def safe_cell(text: object) -> str:
    """Text from outside for a table: one line, nothing invisible, and no sign that Markdown or HTML would act on."""
    line = visible(" ".join(str(text).split()))
    for sign, safe in (
        ("\\", "\\\\"),
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("|", "\\|"),
        ("*", "\\*"),
        ("`", "\\`"),
        ("[", "\\["),
        ("~", "\\~"),
    ):
        line = line.replace(sign, safe)
    return _EDGE_LINES.sub(r"\_", line)
