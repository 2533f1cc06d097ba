"""Patterns of file names for ``ingest.include`` and ``ingest.exclude``.

``*`` matches any characters but ``/``, ``**`` any characters, ``?`` one character, ``[ab]`` one of these. A pattern
without ``/`` is compared with the name of the file and of each folder above it (``*_mask.png``, ``masks``); one with
``/`` with the path below ``ingest.path``, and with every folder above the file (``masks/``, ``a/*/raw``,
``**/old/*.png``). Case does not matter.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

Matcher = Callable[[str], bool]


def matcher(patterns: Sequence[str]) -> Matcher:
    """Return a function that checks whether a path (relative, POSIX separators) matches one of the patterns."""
    expressions = [(_compiled(pattern), _whole(pattern)) for pattern in patterns]

    def fits(path: str) -> bool:
        parts = unicodedata.normalize("NFC", path).split("/")
        above = ["/".join(parts[: number + 1]) for number in range(len(parts))]
        return any(any(map(wanted.fullmatch, above if whole else parts)) for wanted, whole in expressions)

    return fits


def _whole(pattern: str) -> bool:
    return "/" in pattern.strip("/")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern as a regular expression; as in a shell, an unclosed bracket stands for itself."""
    rest, expression = unicodedata.normalize("NFC", pattern.replace("\\", "/")).strip("/"), ""
    rest = rest.removeprefix("./")
    while rest:
        bracket = re.match(r"\[([!^]?)(\]?[^\]]*)\]", rest)
        if rest.startswith("**/"):
            expression, rest = f"{expression}(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            expression, rest = f"{expression}.*", rest[2:]
        elif bracket and bracket[2]:
            inside = bracket[2].replace("\\", r"\\").replace("[", r"\[").replace("]", r"\]").replace("^", r"\^")
            expression, rest = f"{expression}[{'^' if bracket[1] else ''}{inside}]", rest[bracket.end() :]
        else:
            expression += {"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0]))
            rest = rest[1:]
    return re.compile(expression, re.IGNORECASE | re.DOTALL)


def literal(text: str) -> str:
    """Return a pattern that matches this text only."""
    return re.sub(r"([*?\[])", r"[\1]", text)


def pattern_problem(pattern: str) -> str:
    """Return why a pattern cannot be used, "" if it can."""
    if not pattern.strip(" /"):
        return "a pattern is empty"
    try:
        _compiled(pattern)
    except re.error as error:
        return f"{pattern!r} is not a valid pattern: {error}"
    return ""
