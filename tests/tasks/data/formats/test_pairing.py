"""Annotation files whose names differ slightly from those of their images, for VOC and YOLO."""

import pytest

from tasks.data.ingest.audit import guess_format
from tests.support.format_rows import rows_of
from tests.support.voc_trees import encoded, make_image, put, voc_xml

BOX = b" .5 .5 .2 .2\n"
SUFFIX = {"voc": ".xml", "yolo": ".txt"}


def note(source, label="crack"):
    return voc_xml([label]) if source == "voc" else f"{('crack', 'oil').index(label)}".encode() + BOX


def rows(root, source, images, notes, **options):
    """Images by name; annotations by name without the suffix and with their label."""
    for number, name in enumerate(images):
        put(root / name, encoded(make_image(number), "BMP" if name.lower().endswith("bmp") else "PNG"))
    for name, label in notes.items():
        put(root / f"{name}{SUFFIX[source]}", note(source, label))
    if source == "yolo":
        put(root / "data.yaml", b"names: [crack, oil]")
    return rows_of(source, root, **options)


@pytest.mark.parametrize("source", SUFFIX)
def test_an_annotation_may_be_named_like_the_image_with_its_suffix(tmp_path, source):
    found = rows(tmp_path, source, ["a.png", "a.bmp", "b.png"], {"a.png": "oil", "a.bmp": "crack", "b": "oil"})
    labels = {name: (row.reason, row.labels) for name, row in found.items() if name.endswith(("png", "bmp"))}
    assert labels == {"a.png": ("", ["oil"]), "a.bmp": ("", ["crack"]), "b.png": ("", ["oil"])}
    assert guess_format(tmp_path)[0] == source


@pytest.mark.parametrize("source", SUFFIX)
def test_annotations_named_with_the_image_suffix_are_recognised(tmp_path, source):
    rows(tmp_path, source, ["x/a.png", "x/b.png"], {"x/a.png": "oil", "x/b.png": "oil"})
    assert guess_format(tmp_path)[0] == source


@pytest.mark.parametrize("source", SUFFIX)
@pytest.mark.parametrize(
    ("images", "notes"),
    [
        (["a.png"], {"a": "oil", "a.png": "crack"}),  # two annotations of one image
        (["a.png.bmp", "a.png"], {"a.png": "oil"}),  # two images that it may mean
    ],
)
def test_two_matching_annotations_are_ambiguous(tmp_path, source, images, notes):
    found = rows(tmp_path, source, images, notes)
    assert {found[name].reason for name in images} == {"ambiguous_pair"}


@pytest.mark.parametrize("source", SUFFIX)
@pytest.mark.parametrize(
    ("image", "note"),
    [
        ("images/IMG_1.PNG", "labels/img_1"),
        ("images/img_1.png", "labels/IMG_1.PNG"),
        ("images/a b.png", "labels/a%20b"),
        ("images/a.png", "labels/a.jpg"),  # converted after it was annotated
        ("pics/IMG.png", "marks/annotations/img"),
        ("images/IMG_1.png", "labels/3f2a1b2c-IMG_1"),  # as Label Studio exports it
    ],
)
def test_the_only_annotation_of_an_equivalent_name_is_paired(tmp_path, source, image, note):
    found = rows(tmp_path, source, [image, "images/z.png"], {note: "oil", "labels/z": "crack"})
    assert (found[image].status, found[image].reason, found[image].labels) == ("fixed", "near_name", ["oil"])
    assert note in found[image].detail
    assert found["images/z.png"].reason == ""


@pytest.mark.parametrize("source", SUFFIX)
def test_several_annotations_of_equivalent_names_are_reported(tmp_path, source):
    found = rows(tmp_path, source, ["in/A.png", "in/a.png", "in/z.png"], {"in/z": "oil", "in/A.PNG": "oil"})
    assert found["in/A.png"].reason == found["in/a.png"].reason == "no_annotation"
    note = found[f"in/A.PNG{SUFFIX[source]}"]
    assert note.reason == "no_image"
    assert "in/A.png, in/a.png" in note.detail
    assert "nearly the same names" in found["in/a.png"].detail


def test_equivalent_names_in_voc_split_lists(tmp_path):
    put(tmp_path / "ImageSets/Main/train.txt", b"img_1\nJPEGImages\\img_2.png\ngone\n")
    found = rows(tmp_path, "voc", ["JPEGImages/IMG_1.png", "JPEGImages/img_2.png"],
                 {"Annotations/IMG_1": "oil", "Annotations/img_2": "oil"})  # fmt: skip
    assert {row.split for name, row in found.items() if name.endswith(".png")} == {"train"}
    assert found["ImageSets/Main/train.txt"].detail == "3 names, 1 without an image: gone"
