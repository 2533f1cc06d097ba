"""Names that differ only in what file systems, programs and web addresses change."""

import unicodedata
import urllib.parse
from collections import defaultdict
from collections.abc import Iterable


def path_parts(listed: str) -> tuple[str, ...]:
    """Return a path's parts without drives, roots, ``.``, ``..`` and backslashes, which differ between machines."""
    text = unicodedata.normalize("NFC", listed.strip()).replace("\\", "/")
    return tuple(part for part in text.split("/") if part not in ("", ".", "..") and not part.endswith(":")) or ("",)


def fold_parts(listed: str) -> tuple[str, ...]:
    """Return a path's parts without case, ``%20``, ``+``, kinds of blanks, and ``?query``."""
    parts = path_parts(urllib.parse.unquote_plus(listed))
    last = parts[-1].partition("?")[0] or parts[-1]
    return tuple(" ".join(part.split()).lower() for part in (*parts[:-1], last))


def fold_name(text: str) -> str:
    """Return a name without case, ``%20``, ``+`` and kinds of blanks."""
    return " ".join(unicodedata.normalize("NFC", urllib.parse.unquote_plus(text)).split()).lower()


def match_equivalent_names(some: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Map names without an equal on the other side to their only equivalent there."""
    left, right = set(some), set(others)
    by_near: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, names in enumerate((left - right, right - left)):
        for name in names:
            by_near[fold_name(name)][side].append(name)
    return {one[0]: two[0] for one, two in by_near.values() if len(one) == len(two) == 1}
