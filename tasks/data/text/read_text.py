"""Decodes text files independently of the machine's locale; if the encoding is unclear, the user is asked.

A byte order mark, plain ASCII and UTF-8 are certain. Other bytes are read in each of the usual encodings and scored
(``plausibility``); if two readings are about as plausible and differ, an error asks for the encoding.
"""

import codecs
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.errors import UserError
from tasks.data.text.plausibility import CANDIDATES, Reading, pieces, readings

#: The setting that names an encoding.
KEY = "ingest.encoding"
_GB = frozenset({"gb2312", "gbk", "gb18030", "hz", "cp936", "ms936", "euc_cn"})
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NO_TEXT, PLAUSIBLE = 0.25, 0.4  # below the first it is not text, below the second it is unclear
_CLEAR = 0.2  # minimum lead of the best reading
_UTF8_BELIEF = 2.2
_LONG_SEQUENCE = re.compile(rb"[\xe0-\xf4][\x80-\xbf]{2}")  # rarely valid by chance
_MAX_SHOWN = 60


class TextError(Exception):
    """The bytes are not text in any of the tried encodings."""


@dataclass(frozen=True)
class Encodings:
    """What is known about the encoding of a source's texts.

    Attributes:
        configured: The user's setting (``ingest.encoding``); it overrides what a file declares.
        shared: The most plausible encoding of all files together; what a file declares overrides it.
        known: Words of files whose encoding is certain.
        key: The setting that names the encoding.
    """

    configured: str | None = None
    shared: str | None = None
    known: Collection[str] = field(default_factory=frozenset)
    key: str = KEY


def normalize(text: str) -> str:
    """Strip surrounding blanks and use Unicode's composed form; upper and lower case stay different.

    NUL and lone surrogates, which tables cannot hold, are escaped, so that different names stay different.
    """
    kept = text.strip().replace("\0", r"\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return unicodedata.normalize("NFC", kept)


def decode_text(
    data: bytes, where: object = None, encodings: Encodings | None = None, ask: bool = True
) -> tuple[str, str]:
    """Decode an XML or text file.

    In this order: byte order mark, ASCII, UTF-8, the user's setting, the declaration of an XML file if the result is
    plausible (the GB family as its superset GB18030), and the most plausible of ``CANDIDATES``.

    Args:
        data: The file.
        where: The file's path, for messages.
        encodings: What is known about the source's encoding.
        ask: Whether an unclear encoding is an error; otherwise the most plausible one is used.

    Returns:
        The text, and the encoding's name if it was not as declared or UTF-8, else ``""``.

    Raises:
        TextError: No encoding fits.
        UserError: Several encodings fit, and the text differs.
    """
    known = encodings or Encodings()
    found = certain_text(data)
    if found is None:
        if b"\0" in data:
            raise TextError("the text is in none of the tried encodings: it holds NUL bytes")
        some = pieces(data)
        found = _configured(data, some, known) or declared_text(data, some, known)
        if found is None:
            best = known.shared or best_encoding(some, known, where, ask)
            text = _decoded(data, best)
            if text is None:
                raise TextError(f"the text is not in {best} like the other files")
            found = text, "" if best == "utf-8" else best
    return found[0].removeprefix("\ufeff"), found[1]


def read_text(path: Path, where: str, configured: str | None = None, key: str = KEY) -> str:
    """Read a text file that a setting names.

    Args:
        path: The file.
        where: The setting's key, for messages.
        configured: Its encoding, if the user sets it.
        key: The setting that names its encoding.

    Raises:
        UserError: It cannot be read or is not text, or its encoding is unclear.
    """
    try:
        text, _ = decode_text(path.read_bytes(), f"{where}: {path}", Encodings(configured, key=key))
    except (OSError, TextError) as error:
        raise UserError("cannot read the file", where=f"{where}: {path}", found=error) from error
    return text


def valid_encoding(name: str) -> str:
    """Return Python's name of a text encoding.

    Raises:
        ValueError: There is no encoding of that name.
    """
    try:
        codec = codecs.lookup(name)
        "".encode(name)
    except (LookupError, UnicodeError, ValueError) as error:
        raise ValueError(f"no such encoding; usual are utf-8, {', '.join(CANDIDATES)}") from error
    return "gb18030" if name.lower().replace("-", "_") in _GB else codec.name


def certain_text(data: bytes) -> tuple[str, str] | None:
    """Return the text if its bytes leave no doubt, else ``None``."""
    for mark, name in _MARKS:
        if data.startswith(mark) and (text := _decoded(data, name)) is not None:
            return text, ""
    if b"\0" in data and (wide := _wide(data)) is not None:
        return wide
    text = _decoded(data, "utf-8-sig")
    if text is None or data.isascii():
        return None if text is None else (text, "")
    some = pieces(data)
    found = readings(some, {"utf-8": 1.0})
    if found and (found[0].score >= 0.5 or _LONG_SEQUENCE.search(data)):
        declared = _declaration(data)
        return text, "" if declared in ("", "utf_8", "utf8", "utf_16", "utf16") else "utf-8"
    return None


def _wide(data: bytes) -> tuple[str, str] | None:
    """Decode UTF-16 without a mark: in every unit of an ASCII letter, one byte is zero, always the same one."""
    for name, zeros, letters in (("utf-16-le", data[1::2], data[::2]), ("utf-16-be", data[::2], data[1::2])):
        ascii_units = zeros.count(0)
        if letters.count(0) or len(data) % 2:
            continue
        if ascii_units < (0.9 if data.isascii() else 0.1) * len(zeros) or (text := _decoded(data, name)) is None:
            continue
        found = readings(pieces(text.encode(errors="replace")), {"utf-8": 1.0})
        if not found or found[0].score >= PLAUSIBLE:
            return text, name
    return None


def _configured(data: bytes, some: Sequence[bytes], known: Encodings) -> tuple[str, str] | None:
    if known.configured is None:
        return None
    text = _decoded(data, known.configured)
    if text is None:
        raise TextError(f"the text is not in {known.configured}, which {known.key} names")
    return text, "" if known.configured == "utf-8" else known.configured


def _declaration(data: bytes) -> str:
    found = _DECLARED.match(data.removeprefix(codecs.BOM_UTF8)[:200])
    return found.group(1).decode("ascii").lower().replace("-", "_") if found else ""


def declared_text(data: bytes, some: Sequence[bytes], known: Encodings) -> tuple[str, str] | None:
    """Return the text in the encoding that an XML declares, unless it is implausible or another is much better."""
    declared = _declaration(data)
    name = "gb18030" if declared in _GB else declared
    # A declaration that can be read byte by byte is not UTF-16, whatever it says.
    if not name or name in ("utf_16", "utf16", "utf_8", "utf8") or (text := _decoded(data, name)) is None:
        return None
    as_declared = readings(some, {name: 1.0}, known.known)
    if not as_declared or as_declared[0].score < _NO_TEXT:
        return None
    others = readings(some, CANDIDATES, known.known)
    if others and others[0].texts != as_declared[0].texts and others[0].score > as_declared[0].score + 2 * _CLEAR:
        return None
    return text, name if name == "gb18030" else ""


def _decoded(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except (UnicodeError, LookupError):
        return None


def best_encoding(some: Sequence[bytes], known: Encodings, where: object, ask: bool, part: bool = False) -> str:
    """Return the encoding in which the pieces are most plausible.

    Raises:
        TextError: They are no text in any.
        UserError: It is asked, and the answer is unclear.
    """
    found = readings(some, CANDIDATES | {"utf-8": _UTF8_BELIEF}, known.known, part)
    if not found or found[0].score < _NO_TEXT:
        raise TextError(f"the text is in none of utf-8, {', '.join(CANDIDATES)}; set {known.key} to another encoding")
    clear = found[0].score >= PLAUSIBLE and (len(found) == 1 or found[0].score - found[1].score >= _CLEAR)
    if ask and not clear:
        raise _question(found, where, known.key)
    return found[0].encoding


def _question(found: Sequence[Reading], where: object, key: str) -> UserError:
    rivals = [each for each in found if each.score > found[0].score - _CLEAR][:4]
    rivals = rivals if len(rivals) > 1 else list(found[:2])
    number = next(n for n, texts in enumerate(zip(*(each.texts for each in rivals), strict=True)) if len({*texts}) > 1)
    shown = "".join(f"\n    {each.encoding}: {_visible(each.texts[number])}" for each in rivals)
    names = "|".join(each.encoding for each in rivals)
    return UserError(
        "the text is not UTF-8, and its encoding is unclear",
        where=where,
        found=shown,
        hint=f"set {key}={names} to the correct one, or save the file as UTF-8",
    )


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_MAX_SHOWN])
