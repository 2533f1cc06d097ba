"""One VOC annotation file: from its bytes to image-level labels and boxes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tasks.data.formats.shared.annotation import Annotation, AnnotationError
from tasks.data.formats.shared.foreign_formats import foreign_xml
from tasks.data.source.sample import Boxes
from tasks.data.text.read_text import Encodings, TextError, decode_text, normalize

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


# Elements of an annotation that do not describe the image's content
_HEADS = frozenset({"folder", "filename", "path", "source", "owner", "size", "imagesize", "segmented", "private"})
# Elements in which other dialects write labels
_LABELLED = frozenset(
    {
        "name", "label", "labels", "class", "class_name", "classname", "category", "category_name", "tag", "item",
        "bndbox", "box", "bbox", "polygon", "polyline", "points", "robndbox",
    }
)  # fmt: skip


def parse_annotation(
    data: bytes,
    difficult: bool = True,
    encodings: Encodings | None = None,
    ignored: Literal["ask", "count", "leave_out"] = "ask",
) -> Annotation:
    """Read a VOC annotation.

    Args:
        data: The file.
        difficult: Whether objects marked difficult count; their boxes are read in any case.
        encodings: What is known about the encoding of the source's annotations.
        ignored: Whether objects marked ignore count; ``ask``: a fault if a label depends on them.

    Objects marked deleted (LabelMe) do not count; truncated and occluded ones do, parts of an object are ignored.
    ``filename`` and ``path`` are ignored (they are often wrong), optional fields are optional, and another root element
    is accepted if it holds an ``object`` with a ``name``.

    Raises:
        AnnotationError: Empty, truncated, undecodable or unsafe; an object without a name, no annotation at all, or one
            of another tool or of several images.
    """
    root, encoding = _parsed(data, encodings)
    for element in root.iter():  # namespaces and case do not matter
        element.tag = element.tag.rpartition("}")[2].lower()
    foreign = foreign_xml(root)
    if foreign is not None:
        raise AnnotationError("bad_xml", f"it is {foreign}")
    objects, inner = _objects(root)
    _refuse_others(root, objects)
    names = [normalize(item.findtext("name") or "") for item in objects]
    if not all(names):
        raise AnnotationError("bad_xml", f"{sum(not name for name in names)} object(s) without a name")
    if {normalize(item.findtext("name") or "") for item in inner} - set(names):
        raise AnnotationError("bad_xml", "an object inside another or inside a part: only one level of objects is read")
    kept = [(name, item) for name, item in zip(names, objects, strict=True) if not _is(item, "deleted")]
    counted = [(name, item) for name, item in kept if difficult or not _is(item, "difficult")]
    sure = dict.fromkeys(name for name, item in counted if not _is(item, "ignore"))
    labels = dict.fromkeys(name for name, _ in counted)
    if ignored == "ask" and labels.keys() != sure.keys():
        doubted = ", ".join(sorted(labels.keys() - sure.keys()))
        detail = f"only objects marked ignore are {doubted}: set ingest.voc.ignored to count or leave_out"
        raise AnnotationError("bad_xml", detail)
    sides = tuple(_box(box) for _, item in kept for box in item.findall("bndbox"))
    erased = len(objects) - len(kept)
    return Annotation(
        tuple(sure if ignored == "leave_out" else labels), Boxes(sides, declared=_size(root)), encoding, erased
    )


def _parsed(data: bytes, encodings: Encodings | None) -> tuple["Element", str]:
    """Return the root element, and the encoding if that needed a repair."""
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        text, encoding = decode_text(data, encodings=encodings, ask=False)
        # Given text, the parser ignores the declared encoding, which may be wrong or unknown to it.
        return fromstring(text), encoding
    except TextError as error:
        raise AnnotationError("bad_xml", str(error)) from error
    except DefusedXmlException as error:
        raise AnnotationError("unsafe_xml", type(error).__name__) from error
    except (ParseError, ValueError) as error:
        raise AnnotationError("bad_xml", " ".join(str(error).split())[:200] if data else "zero bytes") from error


def _objects(root: "Element") -> tuple[list["Element"], list["Element"]]:
    """Return the objects, and those inside an object or a part, in document order."""
    outer: list[Element] = []
    inner: list[Element] = []
    stack = [(root, False)]
    while stack:
        element, inside = stack.pop()
        if element.tag == "object":
            (inner if inside else outer).append(element)
        within = inside or element.tag in ("object", "part")
        stack += [(child, within) for child in reversed(element)]
    return outer, inner


def _refuse_others(root: "Element", objects: Sequence["Element"]) -> None:
    """Refuse an XML of several images, or one without objects in which something else may be a label."""
    if not objects and root.tag != "annotation":
        raise AnnotationError("bad_xml", f"root element <{root.tag[:100]}> without any object")
    files = {normalize(element.text or "") for element in root.iter("filename")} - {""}
    inside = [element for element in root.iter("annotation") if element is not root]
    if len(files) > 1 or len(inside) > 1:
        raise AnnotationError("bad_xml", f"it describes {max(len(files), len(inside))} images; an XML for each is read")
    for child in root if not objects else ():
        other = next((element.tag for element in child.iter() if element.tag in _LABELLED), None)
        if child.tag not in _HEADS and other is not None:
            raise AnnotationError("bad_xml", f"no <object>, but <{child.tag[:100]}> with <{other}>, which is not read")


def _is(item: "Element", flag: str) -> bool:
    return (item.findtext(flag) or "").strip().lower() in ("1", "true", "yes")


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
