"""One COCO JSON: from its bytes to the labels of each listed image. Categories count by name, never by position."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.formats.coco.categories import Categories, plain
from tasks.data.formats.coco.records import Json, Record, Rules, join, warning_lines
from tasks.data.formats.shared.foreign_formats import foreign_json
from tasks.data.formats.shared.tree import Entry, split_from_name
from tasks.data.text.read_text import Encodings, TextError, decode_text

_MAX_BYTES = 64 * 2**20  # bytes of a JSON that is parsed only to identify it


@dataclass(frozen=True)
class Listing:
    """What a COCO JSON holds.

    Attributes:
        entry: The file.
        split: The split that its name or its folder names, if any.
        classes: The categories' names in the order of their ids, without ``root``.
        root: The name of a root category without any annotation; "" if there is none.
        records: Its images.
        dangling: Annotations of no listed image: position -> what is wrong with them.
        nameless: Images without a file name: position -> what is wrong with them.
        warnings: One line for each irregularity.
        encoding: The encoding it was decoded with if that needed a repair, else "".
    """

    entry: Entry
    split: str | None
    classes: tuple[str, ...]
    root: str
    records: tuple[Record, ...]
    dangling: dict[str, str]
    nameless: dict[str, str]
    warnings: tuple[str, ...] = ()
    encoding: str = ""


def is_coco_json(path: Path) -> bool:
    """Check whether a JSON mentions images and categories, without parsing it: it may be large, broken or foreign."""
    try:
        text = path.read_bytes().replace(b"\0", b"")  # UTF-16
    except OSError:
        return False  # reported in the file's own row
    return text.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")[:1] == b"{" and b'"images"' in text and b'"categories"' in text


def missing_keys(path: Path) -> list[str]:
    """Return the lists that a JSON with at least one of COCO's three lists lacks; nothing for any other file."""
    try:
        text, _ = decode_text(path.read_bytes() if path.stat().st_size < _MAX_BYTES else b"", ask=False)
        data = json.loads(text)
    except (OSError, TextError, ValueError, RecursionError):
        return []
    keys = ("images", "annotations", "categories")
    missing = [key for key in keys if not isinstance(data, dict) or not isinstance(data.get(key), list)]
    return missing if len(missing) < len(keys) and foreign_json(data) is None else []


def load_listing(entry: Entry, rules: Rules, encodings: Encodings | None = None) -> Listing:
    """Read a COCO JSON.

    Args:
        entry: The file.
        rules: How doubtful annotations are treated.
        encodings: What is known about the encoding of the source's JSON files.

    Raises:
        UserError: It cannot be read, is not JSON, or not in COCO's form; single wrong entries are warnings.
    """
    data, encoding = _load(entry, encodings)
    categories = Categories(_list(data, "categories", entry), entry.path)
    images = _list(data, "images", entry)
    annotations = _list(data, "annotations", entry) if data.get("annotations") is not None else None
    _refuse_dialects(images, annotations or (), entry)
    joined = join(images, annotations, categories, rules, entry.name)
    used = {
        categories.find(annotation.get("category_id"))
        for annotation in annotations or ()
        if isinstance(annotation, dict)
    }
    root_id = categories.root if categories.root not in used and annotations is not None else None
    names = {key: name for key, name in categories.names.items() if key != root_id}
    warnings = list(joined.warnings)
    unused = [name for key, name in names.items() if key not in used] if annotations else []
    warnings += warning_lines(unused, "category or more without an annotation, still labels:")
    if root_id is not None:
        what = "is the supercategory of the others" if categories.is_supercategory else "is a background"
        warnings.append(f"category {root_id}, {categories.names[root_id]}, has no annotation and {what}: no label")
    return Listing(
        entry,
        split_from_name(entry.name),
        tuple(dict.fromkeys(names.values())),
        categories.names[root_id] if root_id is not None else "",
        joined.records,
        joined.dangling,
        joined.nameless,
        tuple(warnings),
        encoding,
    )


def _load(entry: Entry, encodings: Encodings | None) -> tuple[Json, str]:
    try:
        text, encoding = decode_text(entry.path.read_bytes(), entry.path, encodings)
        data = json.loads(text, object_hook=_without_outlines)
    except (OSError, TextError, ValueError) as error:  # ValueError: no JSON, or a number of thousands of digits
        raise UserError("cannot read the COCO JSON", where=entry.path, found=error) from error
    except RecursionError as error:
        raise UserError("cannot read the COCO JSON", where=entry.path, found="nested too deeply") from error
    if not isinstance(data, dict) or not {"images", "categories"} <= set(data):
        kind = foreign_json(data)
        raise UserError(
            "the file is not a COCO JSON",
            where=entry.path,
            expected='an object with "images", "annotations" and "categories"',
            found=kind.tool if kind else _shape(data),
            hint=kind.advice if kind else None,
        )
    return data, encoding


def _shape(data: Any) -> str:
    keys = ", ".join(map(plain, list(data)[:8])) if isinstance(data, dict) else ""
    return f"an object with {keys or 'nothing in it'}" if isinstance(data, dict) else f"a {type(data).__name__}"


def _without_outlines(found: Json) -> Json:
    """Drop the outlines, which make up most of a large JSON and are not used."""
    found.pop("segmentation", None)
    return found


def _list(data: Json, key: str, entry: Entry) -> list[Any]:
    found = data.get(key)
    if not isinstance(found, list):
        kinds = "nothing" if found is None else f"a {type(found).__name__}"
        raise UserError(f'the COCO JSON has no list "{key}"', where=entry.path, found=kinds)
    return found


def _refuse_dialects(images: Sequence[Any], annotations: Sequence[Any], entry: Entry) -> None:
    """Refuse files that are built like COCO but mean something else.

    Raises:
        UserError: It is an LVIS or a panoptic COCO JSON.
    """
    if any(isinstance(image, dict) and "neg_category_ids" in image for image in images[:100]):
        raise UserError(
            "this is an LVIS JSON, in which not every category is annotated in every image",
            where=entry.path,
            expected="a COCO JSON in which every category is annotated in every image",
            hint="select the categories and images that are annotated throughout, and write them as COCO JSON",
        )
    if any(isinstance(annotation, dict) and "segments_info" in annotation for annotation in annotations[:100]):
        raise UserError(
            "this is a panoptic COCO JSON",
            where=entry.path,
            expected="annotations with image_id and category_id",
            hint="name the instances_*.json in ingest.coco.annotations, or convert it (panopticapi's "
            "panoptic2detection_coco_format.py)",
        )
