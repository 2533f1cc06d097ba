"""One VOC annotation file: its bytes in, image-level labels and boxes out."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tasks.data.sample import Boxes
from tasks.data.text import Encodings, TextError, decode_text

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


class AnnotationError(Exception):
    """The annotation cannot be used; ``reason`` is ``bad_xml``, ``unsafe_xml`` or ``bad_text``."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Annotation:
    """What a VOC file says about its image.

    Attributes:
        labels: The names of its objects as written, each once, in order of appearance; ``()`` for a negative.
        boxes: Its boxes, and the size of the image as declared.
        encoding: The encoding it was decoded with, when that needed a repair, else ``""``.
    """

    labels: tuple[str, ...]
    boxes: Boxes = field(default_factory=Boxes)
    encoding: str = ""


def parse_annotation(data: bytes, difficult: bool = True, encodings: Encodings | None = None) -> Annotation:
    """Read a VOC annotation.

    Args:
        data: The file.
        difficult: Whether objects marked difficult give their label; their boxes are looked at in any case.
        encodings: What is known of the encoding of all the source's annotations.

    ``filename`` and ``path`` are not looked at (they are wrong too often), optional fields are optional, and
    another root element is accepted when it holds an ``object`` with a ``name``.

    Raises:
        AnnotationError: Empty, cut off, undecodable, unsafe, an object without a name, or no annotation at all.
    """
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        text, encoding = decode_text(data, encodings=encodings, ask=False)
        # Given as text, the parser does not look at the declared encoding, which may be false or unknown to it.
        root = fromstring(text)
    except TextError as error:
        raise AnnotationError("bad_xml", str(error)) from error
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
    sides = tuple(_box(box) for item in objects for box in item.findall("bndbox"))
    counted = [name for name, item in zip(names, objects, strict=True) if difficult or not _is_difficult(item)]
    return Annotation(tuple(dict.fromkeys(counted)), Boxes(sides, declared=_size(root)), encoding)


def _is_difficult(item: "Element") -> bool:
    return (item.findtext("difficult") or "").strip().lower() in ("1", "true")


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
