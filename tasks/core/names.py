"""Names from outside (sites, clients, classes, runs, files) as a file's name, as a metric's, and on display."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

_DIGITS = 26  # of a digest in a file's name: 104 bits, so that nobody finds two names with the same ones
_KEY_DIGITS = 10  # of a digest in a metric's name, which only has to keep a run's few names apart
_LETTERS, _BYTES = 48, 150  # of what can be read of an escaped name
_PLAIN_BYTES = 100  # of a name that stays; 255 is the limit of file systems, and suffixes need some
_KEY_LETTERS = 100  # of a name in a metric's; MLflow's limit for all its parts together is 250
_ESCAPED = re.compile(rf".*-[0-9a-f]{{{_DIGITS}}}", re.DOTALL)
_KEY_ESCAPED = re.compile(rf".*-[0-9a-f]{{{_KEY_DIGITS}}}", re.DOTALL)
_BLANKS = re.compile(r"^ | $|(?<= ) ")  # at the ends, and after another one
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.ASCII)  # Windows: devices, with any suffix


def file_name(text: str) -> str:
    """Return a file name for any text: readable, safe on every usual file system, different for different texts.

    A plain name stays: lower-case ASCII letters, digits, ``-``, ``_``, single dots inside, letters without case
    such as Chinese ones. Of any other name stays what is safe of it, in lower case, and a digest of the name follows
    (``plant_a_line_1-<26 hex digits>``). So two names differ even where the disk takes upper for lower case, or
    Unicode's composed for its decomposed form; a name that looks like an escaped one is escaped again.

    Args:
        text: Any text, from outside: empty, with separators, with dots, of any length.

    Returns:
        At most 200 bytes in UTF-8, so that a suffix fits within the 255 that file systems allow. Without
        separators, blanks, control and bidirectional characters; not hidden, not reserved, no ``.`` or ``..``.
    """
    text = str(text)
    return text if _is_plain(text) else f"{_readable(text)}-{_digest(text, _DIGITS)}"


def metric_part(name: str) -> str:
    """Return a class, site or stage as one part of a metric's name: unique, without what MLflow refuses.

    Letters of any script, digits, ``_-.`` and space stay. A name that has to be changed, or cut, ends with a digest.
    """
    name = str(name)
    clean = re.sub(r"[^\w\-. ]", "_", name).strip()
    clean = clean if clean.strip(".") else "_"  # "", "." and ".." would make a path that MLflow refuses
    if clean == name and len(clean) <= _KEY_LETTERS and not _KEY_ESCAPED.fullmatch(clean):
        return clean
    return _with_digest(clean, name)


def metric_parts(names: Iterable[str]) -> dict[str, str]:
    """``metric_part`` of each name; those that a data base may take for one (case, accents, width) get a digest too."""
    parts = {name: metric_part(name) for name in names}
    alike: dict[str, int] = {}
    for part in parts.values():
        alike[_folded(part)] = alike.get(_folded(part), 0) + 1
    return {
        name: part if alike[_folded(part)] == 1 or part != name else _with_digest(part, name)
        for name, part in parts.items()
    }


def visible(text: object) -> str:
    """Text from outside with what cannot be seen, or turns the line, as escapes: line breaks, bidirectional marks."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def visible_name(name: object) -> str:
    """Return a name for display: ``visible``, with inconspicuous blanks as escapes; ``''`` for an empty one."""
    return _BLANKS.sub(r"\\x20", visible(name)) or "''"


def visible_lines(text: object) -> str:
    """Return text of several lines for display; line breaks stay."""
    return "\n".join(map(visible, str(text).split("\n")))


def is_portable(name: str) -> bool:
    """Tell whether a custom name fits every usual file system; other names are refused, not escaped."""
    stem = unicodedata.normalize("NFKC", name.split(".")[0]).casefold().strip()
    fits = 0 < len(name.encode("utf-8", "surrogatepass")) <= 200 and name.isprintable()
    odd = set(name) & set('<>:"/\\|?*') or name[:1] in (".", " ") or name[-1:] in (".", " ")
    return fits and not odd and not _RESERVED.fullmatch(stem)


def _is_plain(text: str) -> bool:
    """Tell whether a text can be a file name unchanged, and is not the encoded form of another text."""
    if not text or len(text.encode("utf-8", "surrogatepass")) > _PLAIN_BYTES or _ESCAPED.fullmatch(text):
        return False
    if text[0] in ".-" or text[-1] == "." or ".." in text or _RESERVED.fullmatch(text.split(".")[0]):
        return False
    plain = all(c in "-_." or (c.isascii() and (c.islower() or c.isdigit())) or _is_caseless(c) for c in text)
    return plain and unicodedata.is_normalized("NFC", text)


def _is_caseless(letter: str) -> bool:
    """Tell whether a character is a letter without case and with one form only, written from left to right."""
    return (
        unicodedata.category(letter) == "Lo"
        and unicodedata.bidirectional(letter) == "L"
        and unicodedata.normalize("NFKD", letter).casefold() == letter
    )


def _readable(text: str) -> str:
    """Return the safe characters in lower case: letters, digits, ``-`` and ``_``; ``_`` for all between them."""
    # No name needs more of its beginning, and normalising a megabyte takes its time
    lower = unicodedata.normalize("NFKD", text[: 4 * _LETTERS]).casefold().lower()  # casefold alone: Cherokee capitals
    folded = unicodedata.normalize("NFKD", lower)
    base = "".join(c for c in folded if not unicodedata.combining(c))
    kept = "".join(
        c if c.isalnum() and unicodedata.bidirectional(c) in ("L", "EN") else c * (c == "-") or "_" for c in base
    )
    if not unicodedata.is_normalized("NFC", kept):
        kept = "".join(c if c.isascii() else "_" for c in kept)
    cut = re.sub(r"_+", "_", kept).strip("-_")[:_LETTERS].encode()[:_BYTES].decode("utf-8", "ignore")
    return cut.strip("-_") or "_"


def _with_digest(part: str, name: str) -> str:
    return f"{part[: _KEY_LETTERS - _KEY_DIGITS - 1].rstrip()}-{_digest(name, _KEY_DIGITS)}"


def _folded(text: str) -> str:
    """Equal for names that a data base without regard for case and accents takes for the same."""
    base = unicodedata.normalize("NFKD", text)
    return "".join(c for c in base if not unicodedata.combining(c)).casefold().strip()


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
