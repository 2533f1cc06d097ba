"""COCO JSON: categories by name, listed and unlisted images, several files, faulty entries."""

import pytest

from models.errors import UserError
from tasks.data.formats.coco.reader import recognise
from tests.support.coco_files import CATEGORIES, coco, dump, write_images
from tests.support.format_rows import classes_of, raw_rows, reasons, rows_of
from tests.support.voc_trees import encoded, make_image, put


def test_labels_and_unused_files(tmp_path):
    names = [f"images/{name}.png" for name in ("two", "none", "crowd", "unlisted", "dangling", "odd")]
    write_images(tmp_path, *names)
    put(tmp_path / "images/broken.jpg", b"<html>")
    put(tmp_path / "readme.md", b"x")
    dump(tmp_path / "package.json", {"name": "x"})
    box = {"bbox": [30, 5, 20, 5]}
    annotations = [
        (1, 3), (1, 17), (1, 3), {"image_id": 3, "category_id": 90, "iscrowd": 1, "segmentation": {"counts": "x"}},
        (5, 4), (5, 3), {"image_id": 6, "category_id": 3} | box, (77, 3), (78, 3), {"id": 1, "category_id": 3}, 5,
        (7, 3), (8, 17),
    ]  # fmt: skip
    images = {
        1: "two.png",
        2: "none.png",
        3: "crowd.png",
        5: "dangling.png",
        6: "odd.png",
        7: "broken.jpg",
        8: "gone.png",
    }
    dump(tmp_path / "labels.json", coco(images | {9: {"width": 1}}, annotations))
    lost = [f"labels.json#{place}" for place in ("image_id 77", "image_id 78", "annotations[9]", "annotations[10]")]
    rows = rows_of("coco", tmp_path, missing=["gone.png", "labels.json#images[7]", *lost])
    assert reasons(rows) == {
        **dict.fromkeys(lost, ("quarantined", "dangling")),
        "images/two.png": ("ok", ""),
        "images/none.png": ("quarantined", "doubtful"),
        "images/crowd.png": ("ok", ""),
        "images/unlisted.png": ("quarantined", "no_annotation"),
        "images/dangling.png": ("quarantined", "bad_annotation"),
        "images/odd.png": ("fixed", "odd_box"),
        "images/broken.jpg": ("quarantined", "not_an_image"),
        "gone.png": ("quarantined", "no_image"),
        "labels.json#images[7]": ("quarantined", "no_image"),
        "labels.json": ("ok", "metadata"),
        "package.json": ("ignored", "other"),
        "readme.md": ("ignored", "other"),
    }
    assert rows["images/two.png"].labels == ["crack", "oil"]
    assert "ingest.coco.dangling" in rows["images/none.png"].detail
    assert rows["images/crowd.png"].labels == ["rust"]
    assert rows["images/dangling.png"].detail == "category id 4 is not among the categories"
    remarks = rows["labels.json"].detail
    assert "4 annotation(s) of no listed image" in remarks
    assert "1 image(s) without a file_name, at position 7" in remarks
    assert classes_of("coco", tmp_path) == ["crack", "oil", "rust"]  # in id order, unused or not
    assert (
        rows_of("coco", tmp_path, missing=["gone.png", "labels.json#images[7]"], dangling="pass_over")[
            "images/none.png"
        ].labels
        == []
    )


def test_original_layout_splits_and_other_tasks(tmp_path):
    write_images(tmp_path, "train2017/1.png", "val2017/1.png", "test2017/2.png")
    dump(tmp_path / "annotations/instances_train2017.json", coco({1: "1.png"}, [(1, 3)]))
    dump(tmp_path / "annotations/instances_val2017.json", coco({1: "1.png"}, [(1, 17)]))
    dump(tmp_path / "annotations/person_keypoints_val2017.json", coco({1: "1.png"}, [(1, 1)], [{"id": 1, "name": "p"}]))
    dump(tmp_path / "annotations/captions_val2017.json", {"images": [], "annotations": []})
    rows = rows_of("coco", tmp_path)
    assert (rows["train2017/1.png"].labels, rows["train2017/1.png"].split) == (["crack"], "train")
    assert (rows["val2017/1.png"].labels, rows["val2017/1.png"].split) == (["oil"], "val")
    assert rows["test2017/2.png"].reason == "no_annotation"
    assert rows["annotations/person_keypoints_val2017.json"].reason == "other"
    rows = rows_of("coco", tmp_path, annotations=["annotations/instances_val2017.json"])
    assert rows["train2017/1.png"].reason == "no_annotation"
    with pytest.raises(UserError, match=r"ingest\.coco\.annotations"):
        rows_of("coco", tmp_path, annotations=["annotations/mine.json"])


def test_one_folder_for_each_split(tmp_path):
    for number, split in enumerate(("train", "valid")):
        put(tmp_path / split / "a.png", encoded(make_image(number)))
        dump(tmp_path / split / "_annotations.coco.json", coco({0: "a.png"}, [(0, 3 if number else 17)]))
    rows = rows_of("coco", tmp_path)
    assert (rows["train/a.png"].labels, rows["train/a.png"].split) == (["oil"], "train")
    assert (rows["valid/a.png"].labels, rows["valid/a.png"].split) == (["crack"], "val")


def test_a_json_as_path_reads_only_its_images(tmp_path):
    write_images(tmp_path, "val2017/1.png", "val2017/2.png", "val2017/3.png", "notes.txt")
    path = tmp_path / "annotations/instances_val2017.json"
    dump(path, coco({1: "1.png", 2: "2.png"}, [(1, 3)]))
    found = {sample.path: sample.labels for sample in raw_rows("coco", path)}
    assert found == {"annotations/instances_val2017.json": None, "val2017/1.png": ("crack",), "val2017/2.png": ()}


def test_paths_of_another_machine(tmp_path):
    write_images(tmp_path, "pics/a/1.png", "pics/b/1.png", "pics/b/2.png", "pics/b/3.png", "pics/b/4.png")
    images = {
        1: "C:\\data\\a\\1.png",
        2: "./b/1.png",
        3: "/home/x/2.png",
        4: "/x/3.png",
        5: "/y/3.png",
        6: "http://h/4.png",
    }
    dump(tmp_path / "x.json", coco(images, [(1, 3), (2, 17), (3, 90)]))
    rows = rows_of(
        "coco", tmp_path, missing=["data/a/1.png", "x/3.png", "y/3.png"] if False else ["x/3.png", "y/3.png"]
    )
    assert rows["pics/a/1.png"].labels == ["crack"]  # the only one of the name that nothing else claims
    assert rows["pics/b/1.png"].labels == ["oil"]
    assert rows["pics/b/2.png"].labels == ["rust"]
    assert rows["pics/b/3.png"].reason == "no_annotation"
    assert "may be it, or another" in rows["x/3.png"].detail
    assert rows["pics/b/4.png"].labels == []


def test_image_listed_twice(tmp_path):
    write_images(tmp_path, "same.png", "other.png", "id.png", "id2.png", "split.png", "noid.png")
    images = [(1, "same.png"), (2, "same.png"), (3, "other.png"), (4, "other.png"), (5, "id.png"), (5, "id2.png")]
    images += [(6, "split.png"), (None, "noid.png")]
    annotations = [(1, 3), (1, 17), (2, 17), (2, 3), (3, 3), (4, 17), (5, 3), (6, 3)]
    dump(tmp_path / "train.json", coco(images, annotations))
    dump(tmp_path / "val.json", coco({1: "split.png"}, [(1, 3)]))
    rows = rows_of("coco", tmp_path)
    assert (rows["same.png"].status, rows["same.png"].reason) == ("fixed", "repeated")
    assert rows["same.png"].labels == ["crack", "oil"]
    for name in ("other.png", "id.png", "id2.png", "split.png"):
        assert rows[name].reason == "ambiguous_pair", name
    assert "train.json, val.json" in rows["split.png"].detail
    assert rows["noid.png"].reason == "bad_annotation"  # never a negative


def test_content_decides_what_is_an_image(tmp_path):
    write_images(tmp_path, "a.dat")
    put(tmp_path / "b.heic", b"\0\0\0\x18ftypheic")
    dump(tmp_path / "x.json", coco({1: "a.dat", 2: "b.heic"}, [(1, 3)]))
    rows = rows_of("coco", tmp_path)
    assert (rows["a.dat"].status, rows["b.heic"].reason) == ("ok", "not_an_image")


def test_a_json_without_the_annotations_key_is_unlabelled(tmp_path):
    write_images(tmp_path, "a.png")
    content = coco({1: "a.png"})
    del content["annotations"]
    dump(tmp_path / "image_info_test2017.json", content)
    assert rows_of("coco", tmp_path)["a.png"].reason == "no_annotation"


@pytest.mark.parametrize(
    ("encoding", "reason"), [("utf-8-sig", "metadata"), ("utf-16", "metadata"), ("gbk", "encoding")]
)
def test_encodings(tmp_path, encoding, reason):
    write_images(tmp_path, "一.png")
    dump(tmp_path / "x.json", coco({1: "一.png"}, [(1, "a")], [{"id": "a", "name": "绝缘子"}]), encoding)
    rows = rows_of("coco", tmp_path)
    assert (rows["一.png"].labels, rows["x.json"].reason) == (["绝缘子"], reason)


def test_sites_and_fields(tmp_path):
    write_images(tmp_path, "a.png", "b.png")
    images = {1: {"file_name": "a.png", "station": "north"}, 2: {"file_name": "b.png", "station": " "}}
    dump(tmp_path / "x.json", coco(images, [(1, 3), (2, 3)]))
    rows = rows_of("coco", tmp_path, site={"rule": "column", "column": "station"})
    assert (rows["a.png"].site, rows["b.png"].reason) == ("north", "no_site")
    with pytest.raises(UserError, match="no such column"):
        rows_of("coco", tmp_path, site={"rule": "column", "column": "camera"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"images": [], "categories": [', "cannot read the COCO JSON"),
        ('{"images": [], "categories": ' + "[" * 100_000, "cannot read the COCO JSON"),
        ('{"images": [], "categories": {}, "annotations": []}', 'no list "categories"'),
        ('{"images": 1, "categories": [], "annotations": []}', 'no list "images"'),
        ('{"images": [], "categories": [{"id": 1}]}', "categories, position 0"),
        ('{"images": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}', "a and b"),
        ("[1, 2]", "no COCO JSON found"),
    ],
)
def test_unreadable_json_is_refused(tmp_path, content, says):
    put(tmp_path / "x.json", content.encode())
    with pytest.raises(UserError, match=says):
        rows_of("coco", tmp_path)


def test_different_categories_are_refused(tmp_path):
    dump(tmp_path / "a.json", coco({}))
    dump(tmp_path / "b.json", coco({}, (), CATEGORIES[:2]))
    with pytest.raises(UserError, match="different categories"):
        classes_of("coco", tmp_path)


def test_recognise(tmp_path):
    dump(tmp_path / "x.json", coco({}))
    dump(tmp_path / "shapes.json", {"shapes": [], "imagePath": "a.png"})
    assert recognise(tmp_path, ["x.json", "a.png"]).startswith("x.json")
    assert recognise(tmp_path / "x.json", ["x.json"]).startswith("x.json")
    assert recognise(tmp_path, ["shapes.json", "gone.json"]) == ""
