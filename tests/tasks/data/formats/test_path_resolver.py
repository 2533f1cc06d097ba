"""Listed names that differ from the files' in case, %20 and the like resolve if only one file can be meant."""

import json
import unicodedata

import pytest

from tasks.data.source.rules import NameRule, compile_rule
from tests.support.coco_files import coco, dump
from tests.support.format_rows import rows_of
from tests.support.voc_trees import encoded, make_image, put

READERS = ("coco", "table")


def write(root, reader, listed):
    """A list of ``listed`` with the label crack each."""
    if reader == "coco":
        dump(root / "x.json", coco(dict(enumerate(listed)), [(number, 3) for number in range(len(listed))]))
    else:
        put(root / "x.csv", "\n".join(["image,labels", *(f'"{name}",crack' for name in listed)]).encode())


def rows(root, reader, files, listed, missing=()):
    for number, name in enumerate(files):
        put(root / name, encoded(make_image(number)))
    write(root, reader, listed)
    return rows_of(reader, root, missing=missing)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("file", "listed"),
    [
        ("img_1.PNG", "IMG_1.png"),
        ("Bilder/img_1.png", "bilder/IMG_1.png"),
        ("pics/img_1.png", "C:\\Users\\Wu\\IMG_1.PNG"),
        ("a b.png", "a%20b.png"),
        ("a%20b.png", "a b.png"),
        ("ölspur.png", "file:///home/x/%C3%96lspur.png"),
        ("3.45 PM.png", "3.45\u202fPM.png"),
        ("a.png", "https://host/bucket/A.png?X-Amz-Date=1"),
    ],
)
def test_the_only_file_of_an_equivalent_name_is_found(tmp_path, reader, file, listed):
    row = rows(tmp_path, reader, [file, "other.png"], [listed, "other.png"])[file]
    assert (row.status, row.reason, row.labels) == ("fixed", "near_name", ["crack"])
    assert listed in row.detail


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("file", "listed"),
    [
        ("re\u0301seau.png", "r\u00e9seau.png"),
        ("sub/a.png", ".\\sub\\a.png"),
        ("sub/a.png", "/home/x/sub/a.png"),
        ("a%20b.png", "a%20b.png"),
    ],
)
def test_paths_equal_up_to_normalisation_need_no_repair(tmp_path, reader, file, listed):
    found = rows(tmp_path, reader, [file], [listed])
    assert [row.reason for path, row in found.items() if path.endswith("png")] == [""]


@pytest.mark.parametrize("reader", READERS)
def test_files_that_differ_only_in_case_are_ambiguous(tmp_path, reader):
    found = rows(tmp_path, reader, ["A.png", "a.png"], ["A.PNG"], ["A.PNG"])
    assert found["A.PNG"].reason == "no_image"
    assert "several files have nearly its name" in found["A.PNG"].detail
    assert "A.png, a.png" in found["A.PNG"].detail
    assert found["A.png"].reason == found["a.png"].reason == "no_annotation"


@pytest.mark.parametrize("reader", READERS)
def test_files_that_differ_only_in_case_match_their_exact_names(tmp_path, reader):
    found = rows(tmp_path, reader, ["A.png", "a.png"], ["A.png", "a.png"])
    assert (found["A.png"].reason, found["a.png"].reason) == ("", "")


@pytest.mark.parametrize("reader", READERS)
def test_a_listed_file_is_not_matched_to_another_name(tmp_path, reader):
    found = rows(tmp_path, reader, ["a.png"], ["a.png", "A.png"], ["A.png"])
    assert (found["a.png"].reason, found["A.png"].reason) == ("", "no_image")
    assert "a.png has nearly its name, but is listed itself" in found["A.png"].detail


@pytest.mark.parametrize("reader", READERS)
def test_two_names_for_one_file_are_ambiguous(tmp_path, reader):
    found = rows(tmp_path, reader, ["a.png"], ["x/A.png", "y/A.png"], ["x/A.png", "y/A.png"])
    assert found["a.png"].reason == "no_annotation"
    assert "a.png may be it, or another" in found["x/A.png"].detail


def test_sharp_s_does_not_match_ss(tmp_path):
    found = rows(tmp_path, "table", ["Maße.png"], ["Masse.png"], ["Masse.png"])
    assert unicodedata.normalize("NFC", found["Masse.png"].reason) == "no_image"


def test_equivalent_names_in_yolo_split_lists(tmp_path):
    put(tmp_path / "images/A.png", encoded(make_image(0)))
    put(tmp_path / "labels/A.txt", b"0 .5 .5 .2 .2")
    put(tmp_path / "data.yaml", b"names: [crack]")
    put(tmp_path / "test.txt", b"IMAGES\\a.PNG\n")
    assert rows_of("yolo", tmp_path)["images/A.png"].split == "test"


def test_equivalent_names_in_flair_ids(tmp_path):
    for number, name in enumerate(("AB12.jpg", "c.png", "C.png")):
        put(tmp_path / name, encoded(make_image(number)))
    entries = [{"image_id": name, "user_id": "u", "labels": ["oil"], "partition": "train"} for name in ("ab12", "c%2e")]
    put(tmp_path / "labels_and_metadata.json", json.dumps(entries).encode())
    found = rows_of("flair", tmp_path, missing=["c%2e"])
    assert (found["AB12.jpg"].reason, found["AB12.jpg"].labels) == ("near_name", ["oil"])
    assert found["c.png"].reason == found["C.png"].reason == "no_annotation"


@pytest.mark.parametrize(
    ("file", "listed"),
    [
        ("re\u0301seau.png", "r\u00e9seau.png"),
        ("in/IMG_1.PNG", "img_1.png"),
        ("in/a b.png", "in/a%20b.png"),
        ("in/a.png", "C:\\data\\IN\\a.png"),
    ],
)
def test_equivalent_names_in_a_table_of_sites(tmp_path, file, listed):
    put(tmp_path / "sites.csv", f"path,name\n{listed},north\nother/z.png,south\nmore/Z.png,west\n".encode())
    name_of = compile_rule(NameRule.model_validate({"rule": "table", "table": tmp_path / "sites.csv"}), "ingest.site")
    assert name_of(file, {}) == "north"
    assert name_of("in/z.png", {}) == ""  # of neither folder
    assert name_of("Z.PNG", {}) == ""  # of either
