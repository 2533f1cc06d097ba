"""Text from outside: the machine's locale plays no part in decoding it."""

import codecs
import re
import unicodedata
from pathlib import Path

from models.errors import UserError

_GB = frozenset({"gb2312", "gbk", "gb18030", "hz", "cp936", "ms936", "euc_cn"})
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_PLAIN = frozenset({"utf-8", "utf-8-sig", "utf-16", "ascii"})


class TextError(Exception):
    """Bytes that are no text in any encoding that is tried."""


def normal(text: str) -> str:
    """Without blanks around it and in Unicode's composed form; upper and lower case stay different."""
    return unicodedata.normalize("NFC", text.strip())


def decode_text(data: bytes) -> tuple[str, str]:
    """Decode an XML or text file.

    Tried in turn: byte order mark, the encoding an XML file declares (the GB family as its superset GB18030), UTF-8,
    GB18030.

    Returns:
        The text, and the encoding's name if that needed a repair, else ``""``.

    Raises:
        TextError: None of them fits.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        tries = ["utf-16"]
    else:
        found = _DECLARED.match(data.removeprefix(codecs.BOM_UTF8)[:200])
        declared = found.group(1).decode("ascii").lower().replace("-", "_") if found else ""
        tries = ["gb18030" if declared in _GB else declared] if declared else []
        # A declaration that can be read byte by byte is no UTF-16, whatever it says.
        tries = [name for name in tries if name not in ("utf_16", "utf16", "utf_8", "utf8")]
        tries += ["utf-8-sig", "gb18030"]
    for name in tries:
        try:
            text = data.decode(name)
        except (UnicodeError, LookupError):
            continue
        honest = name in _PLAIN or (name == tries[0] and name != "gb18030")
        return text.removeprefix("\ufeff"), "" if honest else name
    raise TextError(f"text is in none of {', '.join(tries)}")


def read_text(path: Path, where: str) -> str:
    """A text file that a setting names.

    Args:
        path: The file.
        where: The setting's key, for messages.

    Raises:
        UserError: It cannot be read or is no text.
    """
    try:
        text, _ = decode_text(path.read_bytes())
    except (OSError, TextError) as error:
        raise UserError("cannot read the file", where=f"{where}: {path}", found=error) from error
    return text
