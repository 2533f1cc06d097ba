"""The VOC reader: annotations, pairing, sites and split lists; every input is made here."""

import os
import sys
from types import SimpleNamespace

import pytest

from models.errors import UserError
from tasks.data.decoding.parallel import Decoding
from tasks.data.formats.shared.annotation import AnnotationError
from tasks.data.formats.voc.xml_file import parse_annotation
from tasks.data.ingest.reading import collect, open_source
from tasks.data.ingest.settings import IngestSettings
from tests.support.voc_trees import add, encoded, make_image, put, voc_xml

ENTITIES = (
    b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><annotation><object><name>&z;</name></object></annotation>'
)


def read(root, site="none", **voc):
    """The manifest rows."""
    settings = IngestSettings(source="voc", path=root, voc=voc, site={"rule": site})
    how = Decoding(32, settings.limits)
    collector = collect(open_source(settings), settings, 0, how)
    collector.select_images()
    return [SimpleNamespace(**row) for row in collector.rows]


def rows_of(root, **options):
    """path -> row, and a check that every file has exactly one."""
    rows = read(root, **options)
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert sorted(row.path for row in rows) == sorted(files)
    return {row.path: row for row in rows}


@pytest.mark.parametrize(
    ("data", "repaired"),
    [
        (voc_xml(["绝缘子"], encoding="gbk"), True),
        (voc_xml(["绝缘子"], encoding="gb2312"), True),
        (voc_xml(["绝缘子"]).decode().encode("gb18030"), True),  # no declaration, so UTF-8 would be right
        (voc_xml(["绝缘子"], encoding="gbk").replace(b'"gbk"', b'"utf-8"'), True),
        (b"\xef\xbb\xbf" + voc_xml(["绝缘子"], encoding="utf-8"), False),
        (voc_xml(["绝缘子"], encoding="utf-16"), False),
        (voc_xml(["绝缘子"], encoding="utf-8"), False),
    ],
)
def test_encodings(data, repaired):
    parsed = parse_annotation(data)
    assert parsed.labels == ("绝缘子",)
    assert bool(parsed.encoding) == repaired


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "bad_xml"),
        (voc_xml(["a"])[:-20], "bad_xml"),
        (b"<html><p/></html>", "bad_xml"),
        (voc_xml([" "]), "bad_xml"),
        (ENTITIES, "unsafe_xml"),
    ],
)
def test_bad_annotations(data, reason):
    with pytest.raises(AnnotationError) as caught:
        parse_annotation(data)
    assert caught.value.reason == reason


def test_unusual_but_valid_annotations():
    assert parse_annotation(voc_xml([])).labels == ()
    assert parse_annotation(voc_xml(["b", "a", "b"], box=None)).labels == ("b", "a")
    assert parse_annotation(b"<doc><object><name>a</name></object></doc>").labels == ("a",)
    assert parse_annotation(voc_xml(["a"], box=("1.5", "2.0", "3.25", "4"))).boxes.count_invalid(40, 30) == 0


@pytest.mark.parametrize(
    "box", [(-1, 0, 5, 5), (5, 5, 5, 9), (9, 1, 3, 5), (0, 0, 41, 5), ("", 0, 5, 5), ("x", 0, 5, 5)]
)
def test_invalid_boxes_keep_the_label(tmp_path, box):
    put(tmp_path / "a.png", encoded(make_image(0)))
    put(tmp_path / "a.xml", voc_xml(["crack"], box=box))
    rows = rows_of(tmp_path)
    assert (rows["a.xml"].status, rows["a.xml"].reason) == ("fixed", "odd_box")
    assert (rows["a.png"].status, rows["a.png"].labels) == ("ok", ["crack"])


def test_pairs_and_unpaired_files(tmp_path):
    add(tmp_path, "good", ["crack"], 0)
    put(tmp_path / "JPEGImages/UPPER.JPG", encoded(make_image(1), "JPEG"))
    put(tmp_path / "Annotations/UPPER.XML", voc_xml(["oil"]))
    put(tmp_path / "images/far.png", encoded(make_image(2)))
    put(tmp_path / "marks/deep/far.xml", voc_xml(["rust"]))
    put(tmp_path / "JPEGImages/lonely.png", encoded(make_image(3)))
    put(tmp_path / "Annotations/orphan.xml", voc_xml(["oil"]))
    for suffix in ("png", "bmp"):
        put(tmp_path / f"JPEGImages/twice.{suffix}", encoded(make_image(4), suffix.upper()))
    put(tmp_path / "Annotations/twice.xml", voc_xml(["oil"]))
    put(tmp_path / "JPEGImages/._good.png", b"\0")
    put(tmp_path / "JPEGImages/Thumbs.db", b"\0")
    put(tmp_path / "notes.txt", b"hello")
    put(tmp_path / "JPEGImages/marked.png", encoded(make_image(5)))
    put(tmp_path / "Annotations/marked.xml", ENTITIES)
    found = {path: (row.status, row.reason) for path, row in rows_of(tmp_path).items()}
    ok, bad = "ok", "quarantined"
    assert found == {
        "JPEGImages/good.png": (ok, ""),
        "Annotations/good.xml": (ok, "annotation"),
        "JPEGImages/UPPER.JPG": (ok, ""),
        "Annotations/UPPER.XML": (ok, "annotation"),
        "images/far.png": (ok, ""),
        "marks/deep/far.xml": (ok, "annotation"),
        "JPEGImages/lonely.png": (bad, "no_annotation"),
        "Annotations/orphan.xml": (bad, "no_image"),
        "JPEGImages/twice.png": (bad, "ambiguous_pair"),
        "JPEGImages/twice.bmp": (bad, "ambiguous_pair"),
        "Annotations/twice.xml": (bad, "annotation_unused"),
        "JPEGImages/._good.png": ("ignored", "hidden"),
        "JPEGImages/Thumbs.db": ("ignored", "hidden"),
        "notes.txt": ("ignored", "other"),
        "JPEGImages/marked.png": (bad, "bad_annotation"),
        "Annotations/marked.xml": (bad, "unsafe_xml"),
    }


def test_several_annotations_of_one_image_are_joined_only_on_request(tmp_path):
    put(tmp_path / "images/1.png", encoded(make_image(0)))
    put(tmp_path / "labels/whole/1.xml", voc_xml(["insulator"]))
    put(tmp_path / "labels/faults/1.xml", voc_xml(["defect", "insulator"]))
    assert rows_of(tmp_path)["images/1.png"].reason == "ambiguous_pair"
    rows = rows_of(tmp_path, several_annotations="join")
    assert rows["images/1.png"].labels == ["defect", "insulator"]
    assert rows["labels/whole/1.xml"].labels == ["insulator"]
    assert {row.status for row in rows.values()} == {"ok"}
    put(tmp_path / "labels/faults/1.xml", b"<annotation>")
    rows = rows_of(tmp_path, several_annotations="join")
    assert (rows["images/1.png"].reason, rows["labels/whole/1.xml"].reason) == ("bad_annotation", "annotation")


def test_sites_are_folders_and_equal_names_stay_separate(tmp_path):
    add(tmp_path, "001", ["crack"], 0, folder="变电站 一")
    add(tmp_path, "001", ["oil"], 1, folder="b")
    put(tmp_path / "c/JPEGImages/002.png", encoded(make_image(2)))
    put(tmp_path / "d/Annotations/002.xml", voc_xml(["oil"]))
    put(tmp_path / "loose.png", encoded(make_image(3)))
    rows = rows_of(tmp_path, site="folder")
    first = rows["变电站 一/JPEGImages/001.png"]
    assert (first.site, first.labels) == ("变电站 一", ["crack"])
    assert rows["b/JPEGImages/001.png"].labels == ["oil"]
    assert rows["c/JPEGImages/002.png"].reason == "no_annotation"  # never paired across sites
    assert rows["loose.png"].reason == "no_site"


def test_role_folders_are_not_sites(tmp_path):
    add(tmp_path, "001", ["crack"], 0)
    with pytest.raises(UserError, match="does not name sites"):
        rows_of(tmp_path, site="folder")


def test_split_lists(tmp_path):
    for i in range(4):
        add(tmp_path, f"{i}.v2", ["crack"], i, folder="VOC2012")
    lists = tmp_path / "VOC2012/ImageSets/Main"
    put(lists / "train.txt", b"0.v2\r\n1.v2.png\r\n")
    put(lists / "test.txt", b"2.v2\nmissing\n")
    put(lists / "trainval.txt", b"0.v2\n")
    rows = rows_of(tmp_path)
    splits = [rows[f"VOC2012/JPEGImages/{i}.v2.png"].split for i in range(4)]
    assert splits == ["train", "train", "test", None]
    assert "1 without an image: missing" in rows["VOC2012/ImageSets/Main/test.txt"].detail
    put(lists / "val.txt", b"0.v2\n")
    with pytest.raises(UserError, match="two split lists"):
        rows_of(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_name_that_is_not_utf8(tmp_path):
    name = os.fsdecode("中.png".encode("gbk"))
    (tmp_path / name).write_bytes(encoded(make_image(0)))
    assert [row.path for row in read(tmp_path)] == ["\\xd6\\xd0.png"]


def test_a_missing_root_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"ingest\.path"):
        read(tmp_path / "none")


def test_objects_marked_difficult_give_no_label_on_request():
    text = b"<annotation><object><name>cat</name><difficult>1</difficult></object><object><name>dog</name></object>"
    text += b"<object><name>cow</name><difficult> 0 </difficult></object></annotation>"
    assert parse_annotation(text).labels == ("cat", "dog", "cow")
    assert parse_annotation(text, difficult=False).labels == ("dog", "cow")
    twice = text.replace(b"</annotation>", b"<object><name>cat</name></object></annotation>")
    assert parse_annotation(twice, difficult=False).labels == ("dog", "cow", "cat")  # an easy one as well
