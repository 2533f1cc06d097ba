"""An annotation without its image never makes an unannotated image a negative, in any format."""

import json

import pytest

from tests.support.format_rows import rows_of
from tests.support.voc_trees import encoded, make_image, put, voc_xml

CATEGORIES = [{"id": 1, "name": "oil"}]


def coco(root):
    images = [{"id": n, "file_name": f"{name}.png"} for n, name in ((1, "a"), (2, "b"))]
    marks = [{"image_id": 1, "category_id": 1}, {"image_id": 9, "category_id": 1}]
    put(root / "x.json", json.dumps({"images": images, "annotations": marks, "categories": CATEGORIES}).encode())
    return {"missing": ["x.json#image_id 9"]}


def voc(root):
    put(root / "a.xml", voc_xml(["oil"]))
    put(root / "bb.xml", voc_xml(["oil"]))


def yolo(root):
    put(root / "classes.txt", b"oil")
    put(root / "a.txt", b"0 .5 .5 .2 .2")
    put(root / "labels/bb.txt", b"0 .5 .5 .2 .2")


def table(root):
    put(root / "x.csv", b"image,labels\na.png,oil\nbb.png,oil\n")
    return {"missing": ["bb.png"], "empty": "negative"}


def flair(root):
    entries = [{"image_id": name, "user_id": "u", "labels": ["oil"], "partition": "train"} for name in ("a", "bb")]
    put(root / "labels_and_metadata.json", json.dumps(entries).encode())
    return {"missing": ["bb"]}


@pytest.mark.parametrize("write", [coco, voc, yolo, table, flair])
def test_an_orphaned_annotation_makes_no_negative(tmp_path, write):
    for number, name in enumerate("ab"):
        put(tmp_path / f"{name}.png", encoded(make_image(number)))
    rows = rows_of(write.__name__, tmp_path, **(write(tmp_path) or {}))
    assert rows["a.png"].labels == ["oil"]
    assert (rows["b.png"].status, rows["b.png"].labels) == ("quarantined", None)
    assert sum(row.reason in ("dangling", "no_image") for row in rows.values()) == 1
