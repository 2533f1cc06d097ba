"""YOLO text: label lines, names of indices, pairs, splits."""

from collections import Counter

import pytest

from models.errors import UserError
from tasks.data.formats.shared.annotation import AnnotationError
from tasks.data.formats.yolo.reader import parse_labels, recognise
from tests.support.format_rows import classes_of, raw_rows, reasons, rows_of, unpacked
from tests.support.voc_trees import encoded, make_image, put

NAMES = {0: "crack", 1: "oil", 3: "rust"}
DATA = b"names: [crack, oil, rust]\n"
BOX = b" 0.5 0.5 0.2 0.2\n"


def add(root, name, text, seed, images="images", labels="labels"):
    put(root / images / f"{name}.png", encoded(make_image(seed)))
    if text is not None:
        put(root / labels / f"{name}.txt", text)


@pytest.mark.parametrize(
    ("data", "labels", "boxes"),
    [
        (b"", (), 0),
        (b"\n  \r\n", (), 0),
        (b"1 0.5 0.5 0.2 0.2\n\n3\t0.1 0.1 0.1 0.1\n1 0.2 0.2 0.1 0.1", ("oil", "rust"), 3),
        (b"0 0.1 0.1 0.5 0.1 0.5 0.5", ("crack",), 0),  # a polygon
        (b"0 0.5 0.5 0.2 0.2 0.93", ("crack",), 1),  # with a confidence
        (b"\xef\xbb\xbf0 0.5 0.5 0.2 0.2", ("crack",), 1),
        ("3 0.5 0.5 0.2 0.2".encode("utf-16"), ("rust",), 1),
    ],
)
def test_label_files(data, labels, boxes):
    found = parse_labels(data, NAMES)
    assert (found.labels, len(found.boxes.sides)) == (labels, boxes)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"0 0.5 0.5 0.2 0.2\n\n7 0.5 0.5 0.2 0.2", "line 3: index 7 has no name, the last is 3"),
        (b"2 0.5 0.5 0.2 0.2", "line 1: index 2"),  # a gap
        (b"-1 0.5 0.5 0.2 0.2", "line 1: '-1'"),
        (b"3.0 0.5 0.5 0.2 0.2", "line 1: '3.0'"),
        (b"crack 0.5 0.5 0.2 0.2", "line 1: 'crack'"),
        (b"9" * 5000 + b" 0.5 0.5 0.2 0.2", "line 1: index 999"),
        (b"0 0.5 0.5 0.2", "line 1: 3 numbers"),
        (b"0 0.5 0.5 0.2 wide", "line 1: .*'wide'"),
        (b"\xff\x00\x81\xff", "text is in none of"),
    ],
)
def test_faulty_label_files(data, says):
    with pytest.raises(AnnotationError, match=says) as caught:
        parse_labels(data, NAMES)
    assert caught.value.reason == "bad_text"


def test_pairs_and_unpaired_files(tmp_path):
    put(tmp_path / "data.yaml", DATA)
    add(tmp_path, "good", b"0" + BOX + b"2" + BOX, 0)
    add(tmp_path, "-1.rf.00", b"1" + BOX, 1)
    add(tmp_path, "negative", b"", 2)
    add(tmp_path, "unlabelled", None, 3)
    add(tmp_path, "range", b"9" + BOX, 4)
    add(tmp_path, "outside", b"1 0.9 0.5 0.4 0.2\n", 5)
    put(tmp_path / "labels/gone.txt", b"1" + BOX)
    put(tmp_path / "labels/about.txt", b"made by hand")
    put(tmp_path / "notes.txt", b"1 0.5 0.5 0.5 0.5")
    put(tmp_path / "README.roboflow.txt", b"hello")
    put(tmp_path / "labels.csv", b"a,b")
    for kind in ("png", "bmp"):
        put(tmp_path / f"images/twice.{kind}", encoded(make_image(6), kind.upper()))
    put(tmp_path / "labels/twice.txt", b"1" + BOX)
    rows = rows_of("yolo", tmp_path)
    ok, bad, ignored = "ok", "quarantined", "ignored"
    assert reasons(rows) == {
        "data.yaml": (ok, "metadata"),
        "images/good.png": (ok, ""),
        "labels/good.txt": (ok, "annotation"),
        "images/-1.rf.00.png": (ok, ""),
        "labels/-1.rf.00.txt": (ok, "annotation"),
        "images/negative.png": (ok, ""),
        "labels/negative.txt": (ok, "annotation"),
        "images/unlabelled.png": (bad, "no_annotation"),
        "images/range.png": (bad, "bad_annotation"),
        "labels/range.txt": (bad, "bad_text"),
        "images/outside.png": (ok, ""),
        "labels/outside.txt": ("fixed", "odd_box"),
        "labels/gone.txt": (bad, "no_image"),
        "labels/about.txt": (ignored, "other"),
        "notes.txt": (ignored, "other"),
        "README.roboflow.txt": (ignored, "other"),
        "labels.csv": (ignored, "other"),
        "images/twice.png": (bad, "ambiguous_pair"),
        "images/twice.bmp": (bad, "ambiguous_pair"),
        "labels/twice.txt": (bad, "annotation_unused"),
    }
    assert rows["images/good.png"].labels == ["crack", "rust"]
    assert (rows["images/negative.png"].labels, rows["images/unlabelled.png"].labels) == ([], None)
    assert rows["images/outside.png"].labels == ["oil"]
    assert rows["labels/range.txt"].detail == "line 1: index 9 has no name, the last is 2"


def test_images_and_labels_in_one_folder(tmp_path):
    put(tmp_path / "obj.names", b"crack\noil\n\n")
    add(tmp_path, "1", b"1" + BOX, 0, "obj", "obj")
    put(tmp_path / "obj/2.txt", b"0" + BOX)
    put(tmp_path / "train.txt", b"data/obj/1.png\n")
    rows = rows_of("yolo", tmp_path)
    assert (rows["obj/1.png"].labels, rows["obj/1.png"].split) == (["oil"], "train")
    assert rows["train.txt"].reason == "split_list"
    assert rows["obj/2.txt"].reason == "no_image"  # label files lie here, so its image is missing


def test_equal_names_in_two_splits_stay_separate(tmp_path):
    put(tmp_path / "data.yaml", DATA)
    add(tmp_path, "1", b"0" + BOX, 0, "images/train", "labels/train")
    add(tmp_path, "1", b"1" + BOX, 1, "images/val", "labels/val")
    add(tmp_path, "2", None, 2, "images/train")
    put(tmp_path / "labels/val/2.txt", b"1" + BOX)
    rows = rows_of("yolo", tmp_path)
    assert (rows["images/train/1.png"].labels, rows["images/val/1.png"].labels) == (["crack"], ["oil"])
    assert (rows["images/train/2.png"].reason, rows["labels/val/2.txt"].reason) == ("no_annotation", "no_image")


@pytest.mark.parametrize(
    ("name", "data", "classes"),
    [
        ("data.yaml", b"names: [b, 'a ', 3]\nnc: 3", ["b", "a", "3"]),
        ("my.yml", b"names: {2: a, 0: b, '7': c}", ["b", "a", "c"]),
        ("data.yaml", "names: [绝缘子, 鸟巢]".encode("gbk"), ["绝缘子", "鸟巢"]),
        ("labels/classes.txt", b"b\r\n\r\na\r\n", ["b", "a"]),
        ("train/_darknet.labels", b"b\na", ["b", "a"]),
    ],
)
def test_names(tmp_path, name, data, classes):
    put(tmp_path / name, data)
    put(tmp_path / "other.yaml", b"epochs: 3")
    assert classes_of("yolo", tmp_path) == classes


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"x.txt": b"0" + BOX}, r"their order differs between copies"),
        ({"data.yaml": b"names: [a\n"}, r"data\.yaml: .*line 2"),
        ({"data.yaml": b"names: 17"}, "neither a list nor a mapping"),
        ({"data.yaml": b"names: [a, no]"}, "put it in quotes"),
        ({"data.yaml": b"names: {a: 0}"}, "an index is not a whole number"),
        ({"data.yaml": b"names: []"}, "names no class"),
        ({"data.yaml": b"names: [a, b]", "classes.txt": b"b\na"}, r"ingest\.yolo\.names"),
    ],
)
def test_faulty_names_files_are_refused(tmp_path, files, says):
    for name, data in files.items():
        put(tmp_path / name, data)
    with pytest.raises(UserError, match=f"(?s){says}"):
        classes_of("yolo", tmp_path)


def test_given_names_and_a_broken_yaml(tmp_path):
    add(tmp_path / "set", "1", b"1" + BOX, 0)
    put(tmp_path / "set/data.yaml", b"names: [a, b]")
    put(tmp_path / "set/classes.txt", b"b\na")
    put(tmp_path / "mine.txt", b"x\ny")
    rows = rows_of("yolo", tmp_path / "set", names=tmp_path / "mine.txt")
    assert rows["images/1.png"].labels == ["y"]
    assert rows["data.yaml"].reason == "other"
    rows = rows_of("yolo", tmp_path / "set", names=tmp_path / "set/classes.txt")
    assert (rows["images/1.png"].labels, rows["classes.txt"].reason) == (["a"], "metadata")
    put(tmp_path / "set/data.yaml", b"names: [a")
    assert reasons(rows_of("yolo", tmp_path / "set"))["data.yaml"] == ("quarantined", "bad_text")


def splits_of(root, yaml):
    put(root / "data.yaml", DATA + yaml)
    return {path: row.split for path, row in rows_of("yolo", root).items() if path.endswith(".png")}


def test_splits(tmp_path):
    for number, folder in enumerate(("a", "b/images", "valid/images")):
        add(tmp_path, f"{number}", b"0" + BOX, number, folder, folder.replace("images", "labels"))
    names = ["a/0.png", "b/images/1.png", "valid/images/2.png"]
    assert splits_of(tmp_path, b"") == dict(zip(names, (None, None, "val"), strict=True))
    yaml = b"path: ../datasets/x\ntrain: [a]\nval: /content/other/b/images\ntest: ../valid/images"
    assert splits_of(tmp_path, yaml) == dict(zip(names, ("train", "val", "test"), strict=True))
    assert splits_of(tmp_path, b"train: a\nval: a\ntest:") == dict(zip(names, (None, None, "val"), strict=True))
    put(tmp_path / "lists/one.txt", b"./a/0.png\nC:\\x\\1.png\nmissing.png\n")
    assert splits_of(tmp_path, b"test: lists/one.txt") == dict(zip(names, ("test", "test", "val"), strict=True))
    assert "1 without an image: missing.png" in rows_of("yolo", tmp_path)["lists/one.txt"].detail
    put(tmp_path / "val.txt", b"a/0.png")
    with pytest.raises(UserError, match="lists of two splits"):
        splits_of(tmp_path, b"test: lists/one.txt")


def test_sites(tmp_path):
    put(tmp_path / "data.yaml", DATA)
    for number, site in enumerate(("s1", "s2")):
        add(tmp_path / site, "1", f"{number}".encode() + BOX, number)
    add(tmp_path, "3", b"0" + BOX, 3, "", "")
    rows = rows_of("yolo", tmp_path, site={"rule": "folder"})
    assert (rows["s2/images/1.png"].site, rows["s2/images/1.png"].labels) == ("s2", ["oil"])
    assert rows["3.png"].reason == "no_site"


def test_recognise(tmp_path):
    put(tmp_path / "1.txt", b"0" + BOX)
    put(tmp_path / "2.txt", b"a cat on a mat")
    assert recognise(tmp_path, ["1.jpg", "1.txt", "README.txt"]).startswith("1 text file")
    assert recognise(tmp_path, ["2.jpg", "2.txt"]) == ""  # captions


@pytest.mark.integration
def test_ppe_data(tmp_path):
    root = unpacked("ppe-site-192", tmp_path)
    rows = list(raw_rows("yolo", root))
    images = [row for row in rows if row.image]
    assert Counter(row.split for row in images) == {"train": 2605, "val": 114, "test": 82}
    expected = {
        "Hardhat": (1314, 42, 30), "Mask": (1096, 19, 16), "NO-Hardhat": (1380, 37, 25), "NO-Mask": (1531, 44, 30),
        "NO-Safety Vest": (1864, 56, 36), "Person": (2526, 84, 59), "Safety Cone": (631, 13, 8),
        "Safety Vest": (1319, 28, 22), "machinery": (2101, 26, 22), "vehicle": (744, 16, 15),
    }  # fmt: skip
    found = Counter((label, row.split) for row in images for label in row.labels)
    assert {name: tuple(found[name, split] for split in ("train", "val", "test")) for name in expected} == expected
    empty = Counter(row.split for row in images if not row.labels)
    assert empty == {"train": 6, "val": 10, "test": 8}
    assert {row.path for row in rows if row.reason == "other"} == {
        "README.dataset.txt", "README.roboflow.txt", "labels.csv"
    }  # fmt: skip


@pytest.mark.integration
def test_coco256_data(tmp_path):
    rows = {row.path: row for row in raw_rows("yolo", unpacked("coco256-240", tmp_path))}
    assert {path[-10:-4] for path, row in rows.items() if row.reason == "no_annotation"} == {"000250", "000508"}
    assert {path[-10:-4] for path, row in rows.items() if row.reason == "no_image"} == {"000656", "000659"}
    used = {split: {la for row in rows.values() if row.split == split for la in row.labels or ()} for split in
            ("train", "val")}  # fmt: skip
    assert (len(used["train"]), len(used["val"])) == (71, 73)
