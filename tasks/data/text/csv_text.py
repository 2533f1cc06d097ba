"""CSV text as programs write it: its delimiter, and Excel's first line that names one."""

import csv
import io
import re

from models.errors import UserError
from tasks.data.text.read_text import normalize

_DELIMITERS = ",;\t|"
_EXCEL = re.compile(r"\s*\"?sep=(.)\"?[,;\t|]*\s*", re.IGNORECASE)  # a first line that gives Excel the delimiter


def dialect(text: str) -> tuple[str, int]:
    """Return the delimiter, and the number of lines before the first row: 1 for Excel's ``sep=;``, else 0."""
    first = text[:65536].partition("\n")[0].partition("\r")[0]
    declared = _EXCEL.fullmatch(first)
    if declared:
        return declared.group(1), 1
    return max(_DELIMITERS, key=first.count), 0


def stream(text: str, skipped: int) -> io.StringIO:
    """Return the text from its first row on."""
    text_stream = io.StringIO(text, newline="")
    for _ in range(skipped):
        text_stream.readline()
    return text_stream


def csv_rows(text: str, where: object) -> list[tuple[int, list[str]]]:
    """Return the rows of a small table with their line numbers, without blank rows and surrounding blanks.

    Raises:
        UserError: It is not CSV.
    """
    delimiter, skipped = dialect(text)
    reader = csv.reader(stream(text, skipped), delimiter=delimiter)
    try:
        rows = [(reader.line_num + skipped, [normalize(cell) for cell in row]) for row in reader]
    except csv.Error as error:
        raise UserError(
            "the file is not a valid CSV", where=f"{where}, line {reader.line_num + skipped}", found=error
        ) from error
    return [(line, row) for line, row in rows if any(row)]
