"""One COCO JSON: its bytes in, the labels of each listed image out. Categories count by name, never by position."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.formats.tree import Entry, split_of
from tasks.data.sample import Boxes
from tasks.data.text import TextError, decode_text, normal

Json = dict[str, Any]
_LARGEST = 1e12  # of a side in pixels; Python's integers may be too large for a float


@dataclass(frozen=True)
class Record:
    """An image as the JSON lists it.

    Attributes:
        listed: Its ``file_name``.
        labels: Names of its annotations' categories, each once; ``()`` without any, ``None`` when the JSON has no
            ``annotations`` at all.
        boxes: Its boxes and its declared size.
        fields: Its other entries, for the rules that name sites and groups by column.
        reason: Why its labels cannot be used, a code of the manifest; "" when they can.
        detail: The same for a person.
    """

    listed: str
    labels: tuple[str, ...] | None
    boxes: Boxes
    fields: Mapping[str, str]
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Listing:
    """What a COCO JSON holds.

    Attributes:
        entry: The file.
        split: The split that its name or its folder names, if any.
        classes: The categories' names in the order of their ids.
        records: Its images.
        remarks: What is wrong in it, one line each.
        encoding: The encoding it was decoded with, when that needed a repair, else "".
    """

    entry: Entry
    split: str | None
    classes: tuple[str, ...]
    records: tuple[Record, ...]
    remarks: tuple[str, ...] = ()
    encoding: str = ""


def looks_like_coco(path: Path) -> bool:
    """Whether a JSON speaks of images and categories; it is not parsed, as it may be large, broken or another's."""
    try:
        text = path.read_bytes().replace(b"\0", b"")  # UTF-16
    except OSError:
        return False  # the file's own row will say so
    return text.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")[:1] == b"{" and b'"images"' in text and b'"categories"' in text


def load_listing(entry: Entry) -> Listing:
    """Read a COCO JSON.

    Raises:
        UserError: It cannot be read, is no JSON, or is not built as COCO's are; single wrong entries are remarks.
    """
    data, encoding = _load(entry)
    names = _categories(data, entry)
    images = _list(data, "images", entry)
    marks: dict[str, list[Json]] = defaultdict(list)
    remarks: list[str] = []
    labelled = data.get("annotations") is not None
    lost = []
    for number, mark in enumerate(_list(data, "annotations", entry) if labelled else []):
        if isinstance(mark, dict) and mark.get("image_id") is not None:
            marks[str(mark["image_id"])].append(mark)
        else:
            lost.append(str(number))
    _remark(remarks, lost, "annotation(s) without an image_id, at position")
    uses: dict[str, list[Json]] = defaultdict(list)
    nameless = []
    for number, image in enumerate(images):
        if isinstance(image, dict) and isinstance(image.get("file_name"), str) and image["file_name"].strip():
            uses[str(image.get("id"))].append(image)
        else:
            nameless.append(str(number))
    _remark(remarks, nameless, "image(s) without a file_name, at position")
    dangling = [f"{mark.get('id')} of image {key}" for key, some in marks.items() if key not in uses for mark in some]
    _remark(remarks, dangling, "annotation(s) of images that are not listed:")
    records = tuple(
        _record(image, marks.get(key, []) if labelled else None, names, len({one["file_name"] for one in some}) > 1)
        for key, some in uses.items()
        for image in some
    )
    return Listing(entry, _split(entry.name), tuple(dict.fromkeys(names.values())), records, tuple(remarks), encoding)


def _load(entry: Entry) -> tuple[Json, str]:
    try:
        text, encoding = decode_text(entry.path.read_bytes())
        data = json.loads(text, object_hook=_without_outlines)
    except (OSError, TextError, ValueError) as error:  # ValueError: no JSON, or a number of thousands of digits
        raise UserError("cannot read the COCO JSON", where=entry.path, found=error) from error
    except RecursionError as error:
        raise UserError("cannot read the COCO JSON", where=entry.path, found="nested without end") from error
    if not isinstance(data, dict):
        raise UserError(
            "the JSON is no COCO JSON",
            where=entry.path,
            expected='an object with "images", "annotations" and "categories"',
            found=f"a {type(data).__name__}",
        )
    return data, encoding


def _without_outlines(found: Json) -> Json:
    """Outlines make up most of a large JSON and are of no use here."""
    found.pop("segmentation", None)
    return found


def _list(data: Json, key: str, entry: Entry) -> list[Any]:
    found = data.get(key)
    if not isinstance(found, list):
        kinds = "nothing" if found is None else f"a {type(found).__name__}"
        raise UserError(f'the COCO JSON has no list "{key}"', where=entry.path, found=kinds)
    return found


def _categories(data: Json, entry: Entry) -> dict[str, str]:
    """Category id -> name, in the order of the ids."""
    names: dict[str, str] = {}
    found = _list(data, "categories", entry)
    for number, category in enumerate(found):
        name = category.get("name") if isinstance(category, dict) else None
        if not isinstance(name, str) or not name.strip() or category.get("id") is None:
            raise UserError(
                "a category lacks its id or its name",
                where=f"{entry.path}, categories, position {number}",
                expected='{"id": 1, "name": "crack"}',
                found=str(category)[:200],
            )
        if names.setdefault(str(category["id"]), normal(name)) != normal(name):
            two = f"{names[str(category['id'])]} and {normal(name)}"
            raise UserError("two categories have one id", where=entry.path, found=f"id {category['id']}: {two}")
    if all(key.isascii() and key.isdigit() for key in names):
        return {key: names[key] for key in sorted(names, key=int)}
    return names


def _record(image: Json, marks: Sequence[Json] | None, names: Mapping[str, str], shared: bool) -> Record:
    fields = {
        key: str(value)
        for key, value in image.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    size = (_number(image.get("width")), _number(image.get("height")))
    sides = tuple(_sides(mark["bbox"]) for mark in marks or () if mark.get("bbox"))
    boxes = Boxes(sides, declared=None if math.isnan(sum(size)) else size)
    labels, reason, detail = None, "", ""
    unknown = sorted({str(mark.get("category_id")) for mark in marks or ()} - set(names))
    if image.get("id") is None:
        reason, detail = "bad_annotation", "the image has no id, so nothing says which annotations are its own"
    elif shared:
        reason, detail = "ambiguous_pair", f"image id {image['id']} stands for several files"
    elif marks is None:
        reason, detail = "no_annotation", "the JSON has no annotations"
    elif unknown:
        reason, detail = "bad_annotation", f"category id {', '.join(unknown)} is not among the categories"
    else:
        labels = tuple(dict.fromkeys(names[str(mark["category_id"])] for mark in marks))
    return Record(image["file_name"], labels, boxes, fields, reason, detail)


def _sides(box: object) -> tuple[float, float, float, float]:
    """A box ``[x, y, width, height]`` as its sides."""
    given = [_number(side) for side in box] if isinstance(box, list) else []
    if len(given) != 4:
        return (math.nan, math.nan, math.nan, math.nan)
    x, y, width, height = given
    return (x, y, round(x + width, 2), round(y + height, 2))  # a sum may pass the border by a rounding error


def _number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _LARGEST else math.nan  # type: ignore[arg-type]


def _split(name: str) -> str | None:
    """The split in a name such as ``instances_train2017.json``, else that of its folder."""
    stem = name.rsplit("/", 1)[-1].lower()
    for token in stem.replace(".", "_").replace("-", "_").split("_"):
        split = split_of(f"{token}/image")
        if split is not None:
            return split
    return split_of(name)


def _remark(remarks: list[str], found: list[str], what: str) -> None:
    if found:
        remarks.append(f"{len(found)} {what} {', '.join(found[:5])}" + (", ..." if len(found) > 5 else ""))
