"""The audit over every odd input that users really have: one row per file, as it should be, and the right exit code."""

import pyarrow.parquet as pq
import pytest

from tests.support.audit_cases import CASES, table, yolo
from tests.support.audit_checks import LOOSE, check, files_below  # noqa: F401 - check is a fixture
from tests.support.voc_trees import add, encoded, make_image, put, sound_tree


@pytest.mark.parametrize("case", CASES)
def test_every_malformed_input_gets_the_right_row(case, check, tmp_path):  # noqa: F811
    files, expected = CASES[case]()
    root = tmp_path / "源 data"
    for name, data in files.items():
        put(root / name, data)
    options = list(LOOSE)
    if case == "system files":
        sound_tree(root, images=2)
    if case == "unknown labels":
        put(tmp_path / "classes.txt", b"oil\ncrack\n")
        put(tmp_path / "aliases.csv", b"found,meant\noill,oil\n")
        options += ["--classes", tmp_path / "classes.txt", "--aliases", tmp_path / "aliases.csv"]
    code, found = check(root, *options)
    rows = {row["path"]: row for row in found["files"]}
    assert sorted(path for path in rows if "#" not in path) == files_below(root)  # beside entries of a file
    for path, (status, reason, *more) in expected.items():
        row = rows[path]
        assert (row["status"], row["reason"]) == (status, reason), path
        if len(more) == 2:
            assert [row["width"], row["height"]] == more
        elif more:
            assert row["labels"] == more[0], path
    assert sum(found["counts"]["status"].values()) == sum(found["counts"]["reason"].values()) == len(rows)
    usable = any(row["labels"] for row in found["files"] if row["status"] in ("ok", "fixed") and row["width"])
    assert code == (0 if usable and case != "unknown labels" else 1)


def test_boxes_in_the_stored_frame_are_noted(check, tmp_path):  # noqa: F811
    for name, data in CASES["EXIF orientation"]()[0].items():
        put(tmp_path / "src" / name, data)
    check(tmp_path / "src", "--out", tmp_path / "out")
    details = {row["path"]: row["detail"] for row in pq.read_table(tmp_path / "out/manifest.parquet").to_pylist()}
    assert "before its EXIF transposition" in details["Annotations/a.xml"]


def test_unknown_labels_are_counted_with_the_nearest_label(check, tmp_path):  # noqa: F811
    for i, label in enumerate(("oil", "oill", "oill", "Oil", "xyzzy")):
        add(tmp_path / "src", str(i), [label], i)
    put(tmp_path / "classes.yaml", b"names: [oil, crack]")
    code, found = check(tmp_path / "src", "--classes", tmp_path / "classes.yaml", *LOOSE)
    assert code == 1
    assert found["unknown_labels"] == {"Oil": 1, "oill": 2, "xyzzy": 1}
    assert "'oill' in 2 image(s), nearest known label 'oil': JPEGImages/1.png, JPEGImages/2.png" in found["problem"]
    assert found["labels"] == {"oil": 1, "crack": 0}


@pytest.mark.parametrize("case", ["yolo", "folder", "table"])
def test_a_source_that_cannot_be_understood_ends_with_2_and_a_hint(case, check, tmp_path):  # noqa: F811
    files = {
        "yolo": {name: data for name, data in yolo(a=b"0 .5 .5 .2 .2").items() if name != "data.yaml"},
        "folder": {f"all/{name}/a.png": encoded(make_image(i)) for i, name in enumerate(("oil", "crack"))},
        "table": {"t.csv": table(("bild", "klasse"), ("a.png", "oil")), "a.png": encoded(make_image(0))},
    }[case]
    for name, data in files.items():
        put(tmp_path / "src" / name, data)
    words = {"yolo": "ingest.yolo.names", "folder": "ingest.folder.level", "table": "bild, klasse"}[case]
    code, found = check(tmp_path / "src", "--format", case)
    assert code == 2
    assert words in str(found["error"])
