"""Rules that audit and ingest share: images without labels, files that must not be read, the report."""

import os

import pytest

from models.errors import UserError
from tasks.data.ingest.ingest import IngestSettings, ingest
from tests.support.audit_checks import LOOSE, check  # noqa: F401 - check is a fixture
from tests.support.voc_trees import encoded, make_image, put, sound_tree, voc_xml


def test_images_without_labels_are_checked_as_images(check, tmp_path):  # noqa: F811
    root = tmp_path / "src"
    for i in range(3):
        put(root / f"{i}.png", encoded(make_image(i)))
    put(root / "again.png", encoded(make_image(0)))
    put(root / "print.jpg", encoded(make_image(5).convert("CMYK"), "JPEG"))
    code, found = check(root)
    rows = {row["path"]: (row["status"], row["reason"], row["labels"]) for row in found["files"]}
    assert (code, found["format"], found["unlabelled"], found["images"]) == (0, "images", 5, 0)
    assert rows["1.png"] == ("ok", "unlabelled", None)
    assert rows["print.jpg"] == ("fixed", "cmyk", None)
    assert sorted((rows["0.png"][1], rows["again.png"][1])) == ["duplicate", "unlabelled"]
    put(root / "cut.png", encoded(make_image(6))[:-900])
    code, found = check(root)
    assert code == 1
    assert "1 of 5 inputs" in found["problem"]
    with pytest.raises(UserError, match="the images have no labels"):
        ingest(IngestSettings(source="images", path=root, image_size=32, max_bad_share=1), tmp_path / "out", seed=0)


def test_pipes_are_not_read_and_huge_files_not_loaded(check, tmp_path):  # noqa: F811
    root = sound_tree(tmp_path / "src", images=3)
    for name in ("pipe.jpg", "pipe.xml"):
        os.mkfifo(root / name)
    with (root / "JPEGImages/giant.jpg").open("wb") as file:
        file.truncate(10_000_000)
    put(root / "Annotations/giant.xml", voc_xml(["oil"]))
    _, found = check(root, *LOOSE, "--set", "ingest.max_pixels=10000")
    rows = {row["path"]: row["reason"] for row in found["files"]}
    assert (rows["pipe.jpg"], rows["pipe.xml"], rows["JPEGImages/giant.jpg"]) == ("other", "other", "too_large")


def test_an_ingest_writes_its_audit_into_the_data_set(tmp_path):
    root = sound_tree(tmp_path / "src", images=9)
    put(root / "JPEGImages/alone.png", encoded(make_image(90)))
    ingest(IngestSettings(source="voc", path=root, image_size=32, max_bad_share=1), tmp_path / "out", seed=0)
    assert sorted(path.name for path in (tmp_path / "out/audit").iterdir()) == [
        "audit.md", "manifest.parquet", "quarantined.png",
    ]  # fmt: skip
