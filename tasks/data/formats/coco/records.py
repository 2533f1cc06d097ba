"""The images of a COCO JSON with their annotations.

An image without annotations is a negative, unless some annotations belong to no listed image: they may be its own.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.data.formats.coco.categories import Categories, plain
from tasks.data.formats.coco.ids import Ids, normalize_id
from tasks.data.source.sample import Boxes

Json = dict[str, Any]
AnnotationsById = dict[str | None, list[Json]]
_MAX_SIDE = 1e12  # of a side in pixels; Python's integers may be too large for a float
_OTHER_KEYS = ("imageId", "imageID", "image", "img_id", "imgId", "image_name", "file_name", "filename")
_FILE_KEYS = ("filename", "fileName", "path", "name", "image", "coco_url", "flickr_url")
_SET = (True, 1, "1", "true", "True")


@dataclass(frozen=True)
class Rules:
    """How the settings treat doubtful annotations.

    Attributes:
        ignored: Whether annotations marked ``ignore`` count.
        distrust: Whether images without annotations are no negatives while annotations belong to no listed image.
        empty: Whether the images of a JSON without any annotation are negatives.
        unlabelled: Whether an image without annotations is unlabelled, not a negative, though others have some.
    """

    ignored: Literal["ask", "count", "leave_out"] = "ask"
    distrust: bool = True
    empty: bool = False
    unlabelled: bool = False


@dataclass(frozen=True)
class Record:
    """An image as the JSON lists it.

    Attributes:
        listed: Its ``file_name``.
        labels: Names of its annotations' categories, each once; ``()`` without any, ``None`` if the JSON does not
            say.
        boxes: Its boxes and its declared size.
        fields: Its other entries, for the rules that name sites and groups by column.
        reason: Why its labels cannot be used, a code of the manifest; "" when they can.
        detail: The same, human-readable.
    """

    listed: str
    labels: tuple[str, ...] | None
    boxes: Boxes
    fields: Mapping[str, str]
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Joined:
    """Images with their annotations.

    Attributes:
        records: The images that have a file name.
        dangling: Annotations that belong to no listed image: position -> what is wrong with them.
        nameless: Images without a file name: position -> what is wrong with them.
        warnings: One line for each irregularity.
    """

    records: tuple[Record, ...]
    dangling: dict[str, str]
    nameless: dict[str, str]
    warnings: tuple[str, ...]


def join(
    images: Sequence[Any], annotations: Sequence[Any] | None, categories: Categories, rules: Rules, name: str
) -> Joined:
    """Assign each image its annotations.

    Args:
        images: The JSON's list.
        annotations: The JSON's annotations, ``None`` when it has none at all.
        categories: Its categories.
        rules: How doubtful annotations are treated.
        name: The JSON's name, for messages.
    """
    by_id: AnnotationsById = defaultdict(list)
    for image in images:
        if isinstance(image, dict):
            by_id[normalize_id(image.get("id"))].append(image)
    attached, unattached = _attached(by_id, annotations or ())
    doubt = ""
    if unattached and rules.distrust:
        doubt = (
            f"no annotation, but {len(unattached)} in {name} belong to no listed image and may be its own; "
            "ingest.coco.dangling decides"
        )
    records = []
    said = annotations is not None and (bool(annotations) or rules.empty)
    for key, some in by_id.items():
        shared = len({image["file_name"] for image in some if _has_file(image)}) > 1
        for image in some:
            if _has_file(image) and not is_set(image, "deleted"):
                annotated = attached.get(key, ()) if said else None
                records.append(_record(image, annotated, categories, rules, doubt, shared))
    most = max(1, len(images))
    return Joined(
        tuple(records),
        _dangling(unattached, name, most),
        _nameless(images, name),
        tuple(_warnings(images, annotations, len(unattached))),
    )


def warning_lines(found: Sequence[str], what: str) -> list[str]:
    """Return one line on what was found, none if nothing was."""
    return [f"{len(found)} {what} {', '.join(found[:5])}" + (", ..." if len(found) > 5 else "")] if found else []


def is_set(entry: Json, key: str) -> bool:
    """Check whether a flag of an entry is set."""
    return entry.get(key) in _SET


def _has_file(image: object) -> bool:
    return isinstance(image, dict) and isinstance(image.get("file_name"), str) and bool(image["file_name"].strip())


def _attached(by_id: AnnotationsById, annotations: Sequence[Any]) -> tuple[AnnotationsById, list[tuple[int, Any]]]:
    """Return the annotations by the id of their image, and those that belong to none, with their positions."""
    ids = Ids(key for key in by_id if key is not None)
    attached: AnnotationsById = defaultdict(list)
    unattached = []
    for number, annotation in enumerate(annotations):
        key = ids.find(annotation.get("image_id")) if isinstance(annotation, dict) else None
        if key is None:
            unattached.append((number, annotation))
        else:
            attached[key].append(annotation)
    return attached, unattached


def _dangling(unattached: Sequence[tuple[int, Any]], name: str, most: int) -> dict[str, str]:
    """Describe annotations without an image, one entry for each image that they name, at most ``most``."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, annotation in unattached:
        found[_reference(annotation) or f"annotations[{number}]"].append(number)
    shown = list(found.items())[:most]
    lines = {
        f"{name}#{place}": f"{len(numbers)} annotation(s), the first at position {numbers[0]}: {_what(place)}"
        for place, numbers in shown
    }
    if len(found) > most:
        lines[f"{name}#{shown[-1][0]}"] += f"; and {len(found) - most} more like it"
    return lines


def _nameless(images: Sequence[Any], name: str) -> dict[str, str]:
    """Describe image entries that name no file."""
    lines = {}
    for number, image in enumerate(images):
        if not _has_file(image):
            other = next((key for key in _FILE_KEYS if isinstance(image, dict) and key in image), None)
            lines[f"{name}#images[{number}]"] = "no file_name" + (f", but {other}, which is not read" if other else "")
    return lines


def _what(place: str) -> str:
    key = place.partition(" ")[0]
    if key == "image_id":
        return "no listed image has this id"
    return "no image_id" + (f", but {key}, which is not read" if key in _OTHER_KEYS else "")


def _reference(annotation: Any) -> str:
    """Return how an annotation names its image, "" if it does not."""
    for key in ("image_id", *_OTHER_KEYS) if isinstance(annotation, dict) else ():
        value = annotation.get(key)
        if isinstance(value, str | int | float) and str(value).strip():
            return f"{key} {plain(str(value))[:100]}"
    return ""


def _warnings(images: Sequence[Any], annotations: Sequence[Any] | None, unattached: int) -> list[str]:
    nameless = [str(number) for number, image in enumerate(images) if not _has_file(image)]
    gone = [plain(image["file_name"]) for image in images if _has_file(image) and is_set(image, "deleted")]
    places = [
        str(number)
        for number, annotation in enumerate(annotations or ())
        if isinstance(annotation, dict) and is_set(annotation, "deleted")
    ]
    hint = f"{unattached} annotation(s) of no listed image; if they are remnants, set ingest.coco.dangling to pass_over"
    none = "no annotation at all; if its images hold no label, set ingest.coco.empty to negative"
    return [
        *warning_lines(nameless, "image(s) without a file_name, at position"),
        *warning_lines(gone, "image(s) marked deleted, left out:"),
        *warning_lines(places, "annotation(s) marked deleted, not counted, at position"),
        *([hint] if unattached else []),
        *([none] if annotations is not None and not annotations else []),
    ]


def _record(
    image: Json, annotations: Sequence[Json] | None, categories: Categories, rules: Rules, doubt: str, shared: bool
) -> Record:
    counted = [annotation for annotation in annotations or () if not is_set(annotation, "deleted")]
    sure = [annotation for annotation in counted if not is_set(annotation, "ignore")]
    found = [categories.find(annotation.get("category_id")) for annotation in counted]
    some = {categories.find(annotation.get("category_id")) for annotation in sure}
    labels, reason, detail = None, "", ""
    if normalize_id(image.get("id")) is None:
        reason, detail = "bad_annotation", "the image has no id, so nothing says which annotations are its own"
    elif shared:
        reason, detail = "ambiguous_pair", f"image id {normalize_id(image['id'])} stands for several files"
    elif annotations is None:
        reason, detail = "no_annotation", "the JSON has no annotations at all (ingest.coco.empty)"
    elif None in found:
        reason, detail = "bad_annotation", _unknown(counted, categories)
    elif rules.ignored == "ask" and set(found) != some:
        names = ", ".join(sorted({categories.names[key] for key in set(found) - some if key is not None}))
        reason = "bad_annotation"
        detail = f"only annotations marked ignore have {names}: set ingest.coco.ignored to count or leave_out"
    elif not annotations and rules.unlabelled:
        reason, detail = "no_annotation", "the JSON has no annotation of it (ingest.coco.unannotated)"
    elif not annotations and doubt:
        reason, detail = "doubtful", doubt
    else:
        keys = [key for key in found if key is not None and (rules.ignored == "count" or key in some)]
        labels = tuple(dict.fromkeys(categories.names[key] for key in keys))
    return Record(plain(image["file_name"]), labels, _boxes(image, counted), _fields(image), reason, detail)


def _unknown(annotations: Sequence[Json], categories: Categories) -> str:
    lost = [
        annotation.get("category_id")
        for annotation in annotations
        if categories.find(annotation.get("category_id")) is None
    ]
    ids = ", ".join(sorted({plain(str(one))[:40] for one in lost if isinstance(one, str | int | float)})[:5])
    return f"category id {ids} is not among the categories" if ids else "an annotation has no category_id"


def _fields(image: Json) -> dict[str, str]:
    return {
        plain(key): plain(str(value))
        for key, value in image.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }


def _boxes(image: Json, annotations: Sequence[Json]) -> Boxes:
    size = (_number(image.get("width")), _number(image.get("height")))
    sides = tuple(_sides(annotation["bbox"]) for annotation in annotations if annotation.get("bbox"))
    return Boxes(sides, declared=None if math.isnan(sum(size)) else size)


def _sides(box: object) -> tuple[float, float, float, float]:
    """Convert a box ``[x, y, width, height]`` to its sides."""
    given = [_number(side) for side in box] if isinstance(box, list) else []
    if len(given) != 4:
        return (math.nan, math.nan, math.nan, math.nan)
    x, y, width, height = given
    return (x, y, round(x + width, 2), round(y + height, 2))  # a sum may exceed the border by a rounding error


def _number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _MAX_SIDE else math.nan  # type: ignore[arg-type]
