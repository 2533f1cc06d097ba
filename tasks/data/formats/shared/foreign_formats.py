"""Annotations of other tools and data sets, recognised so that they are refused by name instead of half read."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tasks.data.formats.shared.pairing import names_beside_images
from tasks.data.text.read_text import TextError, decode_text

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_BYTES = 64 * 2**20  # bytes of a file that is parsed only to identify it
_MAX_INSPECTED = 3  # files of each suffix


@dataclass(frozen=True)
class Foreign:
    """A format that is not read: the tool that writes it, and how to convert it."""

    tool: str
    advice: str

    def __str__(self) -> str:
        return f"{self.tool}, which is not read: {self.advice}"


_CVAT = Foreign("an XML of CVAT for many images", "in CVAT, export the task as PASCAL VOC 1.1 or COCO 1.0")
_MANY = "write one PASCAL VOC XML for each image, or a COCO JSON"
_XML_ROOTS = {
    "annotationlist": Foreign("an annotation list of the TUD sets", _MANY),
    "dataset": Foreign("an XML of dlib's imglab", _MANY),
    "sequence": Foreign("an XML of UA-DETRAC for a whole video", _MANY),
    "opencv_storage": Foreign("a file of OpenCV's storage", _MANY),
}
_LABELME = Foreign("a JSON of LabelMe or AnyLabeling", "convert the folder to COCO, for example with labelme2coco")
_VIA = Foreign("VIA's own project file", "in VIA: Annotation, Export Annotations (COCO format)")
_LABEL_STUDIO = Foreign("Label Studio's own JSON", "in Label Studio: Export, COCO or YOLO or Pascal VOC XML")
_CREATE_ML = Foreign("a JSON of CreateML", "export COCO JSON, VOC or YOLO from the tool that wrote it")
_SUPERVISELY = Foreign("a JSON of Supervisely", "in Supervisely, run the app Export to COCO or Export to Pascal VOC")
_LABELBOX = Foreign("an export of Labelbox", "convert it to COCO JSON")
_DATUMARO = Foreign("a JSON of Datumaro", "datum convert -i FOLDER -if datumaro -f coco -o OUT")
_DARWIN = Foreign("a JSON of V7 Darwin", "in V7, export COCO or Pascal VOC")
_VOTT = Foreign("a JSON of VoTT", "in VoTT, export Pascal VOC")
_BDD = Foreign("a JSON of BDD100K or Scalabel", "python -m bdd100k.label.to_coco, or Scalabel's to_coco")
_HASTY = Foreign("a JSON of Hasty", "in Hasty, export COCO")
_FIFTYONE = Foreign("a JSON of FiftyOne", "dataset.export(..., dataset_type=fiftyone.types.COCODetectionDataset)")
_SAGEMAKER = Foreign("a manifest of SageMaker Ground Truth", "convert it to COCO JSON")
_LINES = Foreign(
    "JSON lines with file names", 'pandas.read_json(FILE, lines=True).to_csv("labels.csv"), then read that'
)
_KITTI = Foreign("label text of KITTI", "datum convert -i FOLDER -if kitti -f voc -o OUT")
_DOTA = Foreign("label text of DOTA", "ultralytics.data.converter.convert_dota_to_yolo_obb")
_MOT = Foreign("a list of MOT Challenge for a whole video", "datum convert -i FOLDER -if mot_seq -f coco -o OUT")
_OPEN_IMAGES = Foreign("a table of Open Images", "datum convert -i FOLDER -if open_images -f coco -o OUT")

_NUMBER = r"-?\d+(?:\.\d+)?"
_TEXTS = (
    (re.compile(rf"[A-Za-z][\w-]*(?: {_NUMBER}){{14,15}}"), _KITTI),
    (re.compile(rf"imagesource:.*|(?:{_NUMBER} ){{8}}[A-Za-z][\w-]*(?: \d)?"), _DOTA),
    (re.compile(rf"\d+, ?-?\d+(?:, ?{_NUMBER}){{5,8}}"), _MOT),
)


def foreign_text(line: str) -> Foreign | None:
    """Name the tool that wrote the first line of a label text."""
    return next((kind for pattern, kind in _TEXTS if pattern.fullmatch(line.strip())), None)


def foreign_xml(root: "Element") -> Foreign | None:
    """Name the tool that wrote an XML, by its root and the elements right below it (tags in lower case)."""
    below = {child.tag for child in root}
    if root.tag == "annotations" and below & {"image", "track", "meta", "job"}:
        return _CVAT
    return _XML_ROOTS.get(root.tag)


def foreign_json(data: Any) -> Foreign | None:
    """Name the tool that wrote a JSON, by its keys."""
    if isinstance(data, dict):
        return _of_object(data)
    first = next((item for item in data if isinstance(item, dict)), {}) if isinstance(data, list) else {}
    return _of_item(first) if first else None


def _of_object(data: dict[str, Any]) -> Foreign | None:
    keys, values = set(data), [value for value in list(data.values())[:3] if isinstance(value, dict)]
    for needed, kind in (
        ({"shapes", "imagePath"}, _LABELME),
        ({"_via_img_metadata"}, _VIA),
        ({"objects", "size", "tags"}, _SUPERVISELY),
        ({"projectType", "classes", "tags"}, _SUPERVISELY),
        ({"categories", "items"}, _DATUMARO),
        ({"item", "annotations"}, _DARWIN),
        ({"asset", "regions"}, _VOTT),
        ({"assets", "tags"}, _VOTT),
        ({"export_format_version", "images"}, _HASTY),
        ({"frames", "name"}, _BDD),
        ({"samples"}, _FIFTYONE),
        ({"classes", "labels"}, _FIFTYONE),
        ({"source-ref"}, _SAGEMAKER),
        ({"data_row", "projects"}, _LABELBOX),
    ):
        if needed <= keys:
            return kind
    if values and all({"filename", "regions"} <= set(value) for value in values):
        return _VIA
    return None


def _of_item(item: dict[str, Any]) -> Foreign | None:
    keys = set(item)
    marks = item.get("annotations")
    mark = marks[0] if isinstance(marks, list) and marks and isinstance(marks[0], dict) else {}
    if (
        {"data", "annotations"} <= keys
        or "result" in mark
        or {"annotator", "lead_time"} <= keys
        or "completions" in keys
    ):
        return _LABEL_STUDIO
    if {"label", "coordinates"} <= set(mark) or ("annotations" in keys and keys & {"image", "imagefilename"}):
        return _CREATE_ML
    if keys & {"data_row", "Labeled Data"}:
        return _LABELBOX
    if {"name", "labels"} <= keys and isinstance(item["labels"], list):
        return _BDD
    return _SAGEMAKER if "source-ref" in keys else None


def foreign_file(path: Path) -> Foreign | None:
    """Name the tool that wrote a file, by its content; ``None`` if unknown or unreadable."""
    suffix = path.suffix.lower()
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        text, _ = decode_text(path.read_bytes(), ask=False)
        if suffix == ".json":
            return foreign_json(json.loads(text))
        if suffix == ".xml":
            return _foreign_xml_text(text)
        line = text.lstrip().partition("\n")[0]
        if suffix in (".jsonl", ".ndjson", ".manifest"):
            found = json.loads(line)
            named = isinstance(found, dict) and {"file_name", "image"} & set(found)
            return foreign_json(found) or (_LINES if named else None)
    except (OSError, TextError, ValueError, RecursionError):
        return None
    if suffix == ".csv":
        return foreign_columns(line.strip().split(","))
    return foreign_text(line)


def _foreign_xml_text(text: str) -> Foreign | None:
    from xml.etree.ElementTree import ParseError

    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(text)
    except (ParseError, ValueError):
        return None
    for element in (root, *root):
        element.tag = element.tag.rpartition("}")[2].lower()
    return foreign_xml(root)


def foreign_columns(columns: Sequence[str]) -> Foreign | None:
    """Name the tool that wrote a table, by its columns."""
    if "region_shape_attributes" in columns:
        return _VIA
    return _OPEN_IMAGES if {"ImageID", "LabelName"} <= set(columns) else None


@dataclass(frozen=True)
class ForeignSet:
    """Foreign annotations in a folder: the tool, some file names, whether at least half of the images have one."""

    kind: Foreign
    names: tuple[str, ...]
    beside_images: bool


def foreign_set(root: Path, names: Sequence[str], images: int) -> ForeignSet | None:
    """Look for foreign annotations among the files of a folder.

    Args:
        root: The folder.
        names: Its files, relative.
        images: How many of them are images.
    """
    for suffix in (".json", ".xml", ".jsonl", ".ndjson", ".manifest", ".csv", ".txt"):
        files = [name for name in names if name.lower().endswith(suffix)]
        per_name = names_beside_images(names, suffix)
        single = [name for name in files if name not in set(per_name)]
        for some, per_image in ((per_name, True), (single, False)):
            inspected = sorted(some, key=lambda name: (name.count("/"), name))[:_MAX_INSPECTED]
            kinds = [(foreign_file(root / PurePosixPath(name)), name) for name in inspected]
            known = [(kind, name) for kind, name in kinds if kind is not None]
            if known:
                kind = known[0][0]
                return ForeignSet(kind, tuple(n for k, n in known if k == kind), per_image and 2 * len(some) >= images)
    return None
