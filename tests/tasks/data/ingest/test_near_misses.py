"""Near misses: files that are almost annotations of a format, and what they lack."""

import json
import re

import pytest

from tasks.data.ingest.audit import guess_format
from tests.support.voc_trees import encoded, make_image, put, voc_xml

LINE = b"0 .5 .5 .2 .2\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"xml/0001.xml": voc_xml(["oil"]), "xml/0002.xml": voc_xml(["oil"])},
         r"xml/0001\.xml is a VOC annotation, but no image has its name \(as for 2 of 2 .*images are named a\.jpg"),
        ({"labels/0001.txt": LINE}, r"labels/0001\.txt holds YOLO label lines, but no image has its name"),
        ({"a.txt": b"a crack in a wall"}, r"a\.txt has the name of an image, but .*'a crack in a wall'"),
        ({"a.txt": b"crack 0.5 0.5 0.2 0.2"}, r"first line is not 'index x y width height': 'crack 0\.5"),
        ({"x.json": json.dumps({"images": [], "annotations": []}).encode()}, r"x\.json .* has no categories"),
        ({"x.json": b'{"annotations": [], "categories": []}'}, r"x\.json .* has no images"),
    ],
)  # fmt: skip
def test_near_misses_are_reported_with_the_reason(tmp_path, files, says):
    for name, data in {
        "a.jpg": encoded(make_image(0), "JPEG"),
        "b.jpg": encoded(make_image(1), "JPEG"),
        **files,
    }.items():
        put(tmp_path / name, data)
    name, why = guess_format(tmp_path)
    assert name == "images"

    assert re.search(says, why), why


def test_files_without_labels_are_no_near_misses(tmp_path):
    files = {
        "README.txt": b"made by hand",
        "package.json": b'{"name": "x"}',
        "pom.xml": b"<project/>",
    }
    for name, data in {"a.jpg": encoded(make_image(0), "JPEG"), **files}.items():
        put(tmp_path / name, data)
    why = guess_format(tmp_path)[1]
    assert "near misses" not in why
    assert "nearly" not in why
