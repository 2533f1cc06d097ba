"""One VOC annotation file: its bytes in, image-level labels and boxes out."""

import codecs
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_GB = frozenset({"gb2312", "gbk", "gb18030", "hz", "cp936", "ms936", "euc_cn"})
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_PLAIN = frozenset({"utf-8", "utf-8-sig", "utf-16", "ascii"})


class AnnotationError(Exception):
    """The annotation cannot be used; ``reason`` is ``bad_xml`` or ``unsafe_xml``."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Annotation:
    """What a VOC file says about its image.

    Attributes:
        labels: The names of its objects as written, each once, in order of appearance; ``()`` for a negative.
        boxes: ``(xmin, ymin, xmax, ymax)`` of every box in pixels, NaN where a side is missing or no number.
        size: Width and height as declared, ``None`` when missing or no number.
        encoding: The encoding it was decoded with, when that needed a repair, else ``""``.
    """

    labels: tuple[str, ...]
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    size: tuple[float, float] | None = None
    encoding: str = ""

    def odd_boxes(self, width: int, height: int) -> int:
        """How many boxes are inverted, of zero area, incomplete or outside an image of this size."""
        # NaN fails every comparison, so an incomplete box counts.
        return sum(not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height) for x1, y1, x2, y2 in self.boxes)


def parse_annotation(data: bytes) -> Annotation:
    """Read a VOC annotation.

    ``filename`` and ``path`` are not looked at (they are wrong too often), optional fields are optional, and
    another root element is accepted when it holds an ``object`` with a ``name``.

    Raises:
        AnnotationError: Empty, cut off, undecodable, unsafe, an object without a name, or no annotation at all.
    """
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    text, encoding = decode_text(data)
    try:
        # Given as text, the parser does not look at the declared encoding, which may be false or unknown to it.
        root = fromstring(text)
    except DefusedXmlException as error:
        raise AnnotationError("unsafe_xml", type(error).__name__) from error
    except (ParseError, ValueError) as error:
        raise AnnotationError("bad_xml", " ".join(str(error).split())[:200] if data else "zero bytes") from error
    objects = list(root.iter("object"))
    if not objects and root.tag != "annotation":
        raise AnnotationError("bad_xml", f"root element <{root.tag}> without any object")
    names = [(item.findtext("name") or "") for item in objects]
    if not all(name.strip() for name in names):
        raise AnnotationError("bad_xml", f"{sum(not name.strip() for name in names)} object(s) without a name")
    boxes = tuple(_box(box) for item in objects for box in item.findall("bndbox"))
    return Annotation(tuple(dict.fromkeys(names)), boxes, _size(root), encoding)


def decode_text(data: bytes) -> tuple[str, str]:
    """Decode an XML or text file; the machine's locale plays no part.

    Tried in turn: byte order mark, declared encoding (the GB family as its superset GB18030), UTF-8, GB18030.

    Returns:
        The text, and the encoding's name if that needed a repair, else ``""``.

    Raises:
        AnnotationError: None of them fits.
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
    raise AnnotationError("bad_xml", f"text is in none of {', '.join(tries)}")


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _box(box: "Element") -> tuple[float, float, float, float]:
    sides = [_number(box.findtext(side)) for side in ("xmin", "ymin", "xmax", "ymax")]
    return (sides[0], sides[1], sides[2], sides[3])


def _size(root: "Element") -> tuple[float, float] | None:
    width, height = _number(root.findtext("size/width")), _number(root.findtext("size/height"))
    return None if math.isnan(width) or math.isnan(height) else (width, height)
