"""One folder per class: how it is found, empty and stray folders."""

from collections import Counter

import pytest

from models.errors import UserError
from tasks.data.formats.folder.reader import recognise
from tasks.data.formats.shared.tree import split_from_folders
from tests.support.format_rows import classes_of, raw_rows, reasons, rows_of, unpacked
from tests.support.voc_trees import encoded, make_image, put


def fill(root, *names):
    for number, name in enumerate(names):
        put(root / name, encoded(make_image(number)))


def seen(rows):
    return {path: (row.labels, row.split) for path, row in rows.items()}


def test_class_split_and_deeper_folders(tmp_path):
    fill(
        tmp_path, "train/cat/1.png", "valid/cat/2.png", "test/猫 头鹰/deep/3.png", "dog/test/4.png", "images/dog/5.png"
    )
    rows = rows_of("folder", tmp_path)
    assert seen(rows) == {
        "train/cat/1.png": (["cat"], "train"),
        "valid/cat/2.png": (["cat"], "val"),
        "test/猫 头鹰/deep/3.png": (["猫 头鹰"], "test"),
        "dog/test/4.png": (["dog"], "test"),
        "images/dog/5.png": (["dog"], None),
    }
    assert {row.status for row in rows.values()} == {"ok"}


def test_images_outside_class_folders_and_other_files(tmp_path):
    fill(tmp_path, "cat/1.png", "dog/2.png", "3.png", "train/4.png")
    put(tmp_path / "cat/notes.md", b"x")
    put(tmp_path / "cat/Thumbs.db", b"x")
    put(tmp_path / "dog/5.jpg", b"")
    assert reasons(rows_of("folder", tmp_path)) == {
        "cat/1.png": ("ok", ""),
        "dog/2.png": ("ok", ""),
        "3.png": ("quarantined", "no_annotation"),
        "train/4.png": ("quarantined", "no_annotation"),
        "cat/notes.md": ("ignored", "other"),
        "cat/Thumbs.db": ("ignored", "hidden"),
        "dog/5.jpg": ("quarantined", "empty"),
    }


def test_empty_class_folders_are_classes_and_other_folders_are_not(tmp_path):
    fill(tmp_path, "train/cat/1.png", "train/dog/2.png")
    for name in ("train/owl", "test/eel/inside", ".git/x", "__MACOSX/train"):
        (tmp_path / name).mkdir(parents=True)
    put(tmp_path / "ant/.gitkeep", b"")
    put(tmp_path / "docs/paper.pdf", b"x")
    assert classes_of("folder", tmp_path) == ["ant", "cat", "dog", "eel", "owl"]


def test_sites_above_or_below_the_class(tmp_path):
    fill(tmp_path, "north/cat/1.png", "south/train/cat/2.png", "south/dog/3.png", "4.png")
    rows = rows_of("folder", tmp_path, site={"rule": "folder"})
    assert {path: (row.site, row.labels) for path, row in rows.items()} == {
        "north/cat/1.png": ("north", ["cat"]),
        "south/train/cat/2.png": ("south", ["cat"]),
        "south/dog/3.png": ("south", ["dog"]),
        "4.png": ("", None),
    }
    assert rows["4.png"].reason == "no_site"
    (tmp_path / "4.png").unlink()
    rows = rows_of("folder", tmp_path, site={"rule": "folder", "level": 2})
    assert (rows["north/cat/1.png"].site, rows["north/cat/1.png"].labels) == ("cat", ["north"])


def test_fixed_level_takes_any_name(tmp_path):
    fill(tmp_path, "a/test/1.png", "a/train/2.png", "b/test/3.png", "b/4.png")
    rows = rows_of("folder", tmp_path, level=2)
    assert seen(rows) == {
        "a/test/1.png": (["test"], None),  # the class folder names no split
        "a/train/2.png": (["train"], None),
        "b/test/3.png": (["test"], None),
        "b/4.png": (None, None),
    }
    assert classes_of("folder", tmp_path, level=2) == ["test", "train"]


def test_one_folder_that_holds_all_classes_is_refused(tmp_path):
    fill(tmp_path, "photos/cat/1.png", "photos/dog/2.png")
    with pytest.raises(UserError, match=r"ingest\.folder\.level"):
        rows_of("folder", tmp_path)
    assert classes_of("folder", tmp_path, level=2) == ["cat", "dog"]
    assert {label for row in rows_of("folder", tmp_path, level=1).values() for label in row.labels} == {"photos"}


def test_same_image_in_two_classes(tmp_path):
    fill(tmp_path, "cat/1.png")
    put(tmp_path / "dog/1.png", encoded(make_image(0)))
    assert {row.reason for row in rows_of("folder", tmp_path).values()} == {"duplicate_conflict"}


def test_recognise(tmp_path):
    assert recognise(tmp_path, ["cat/1.png", "train/dog/2.JPG"]).endswith("cat, dog")
    assert recognise(tmp_path, ["1.png", "2.png", "3.png", "a/4.png", "b/5.png"]) == ""
    assert recognise(tmp_path, ["images/1.png", "images/2.png"]) == ""


@pytest.mark.integration
def test_trashnet_data(tmp_path):
    root = unpacked("trashnet-150", tmp_path)
    rows = rows_of("folder", root)
    found = Counter(label for row in rows.values() for label in row.labels)
    assert found == {"cardboard": 403, "glass": 501, "metal": 410, "paper": 594, "plastic": 482, "trash": 137}
    twice = {path for path, row in rows.items() if row.reason == "duplicate_conflict"}
    pairs = {"glass389": "plastic332", "glass115": "metal91", "glass176": "plastic152"}
    assert {path.split("/")[1].removesuffix(".jpg") for path in twice} == {*pairs, *pairs.values()}


@pytest.mark.integration
def test_cifar10_images_in_class_folders(tmp_path):
    rows = list(raw_rows("folder", unpacked("cifar10-jpg", tmp_path)))
    found = Counter((row.split, row.labels) for row in rows)
    assert len(found) == 20
    assert {count for (split, _), count in found.items() if split == "train"} == {5000}
    assert {count for (split, _), count in found.items() if split == "test"} == {1000}


@pytest.mark.parametrize("word", ["images", "imgs", "photos", "pictures", "picture", "pics", "data", "jpegs", "2017"])
def test_a_folder_that_is_named_after_a_split_and_its_content_is_that_split(word):
    assert split_from_folders(f"train_{word}/1.png") == "train"
    assert split_from_folders(f"kitchen_{word}/1.png") is None
