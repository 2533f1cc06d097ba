"""The table reader: encodings, delimiters, faulty rows, pairing, and labels in one cell or in many."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import UserError
from tasks.data.formats.table.reader import recognise
from tests.support.format_rows import classes_of, reasons, rows_of, unpacked
from tests.support.voc_trees import encoded, make_image, put


def images(root, *names):
    for number, name in enumerate(names):
        put(root / name, encoded(make_image(number)))


@pytest.mark.parametrize(
    ("text", "encoding", "repaired"),
    [
        ("image,labels\na.png,裂纹;锈\nb.png,\n", "gb18030", True),
        ("image,labels\na.png,裂纹;锈\nb.png,\n", "utf-8-sig", False),
        ('image;labels\r\na.png;"裂纹;锈"\r\nb.png;\r\n', "utf-8", False),
        ("image\tlabels\na.png\t裂纹;锈;锈\nb.png\t\n\n", "utf-16", False),
    ],
)
def test_csv_encodings_and_delimiters(tmp_path, text, encoding, repaired):
    images(tmp_path, "a.png", "b.png", "c.png")
    put(tmp_path / "labels.csv", text.encode(encoding))
    rows = rows_of("table", tmp_path)
    assert rows["a.png"].labels == ["裂纹", "锈"]
    assert reasons(rows) == {
        "labels.csv": ("fixed", "encoding") if repaired else ("ok", "metadata"),
        "a.png": ("ok", ""),
        "b.png": ("quarantined", "no_annotation"),  # an empty cell says nothing
        "c.png": ("quarantined", "no_annotation"),  # in no row
    }
    assert rows_of("table", tmp_path, empty="negative")["b.png"].labels == []


def test_faulty_rows(tmp_path):
    images(tmp_path, "in/a.png", "in/b.png", "in/c.png", "in/d.png", "x/same.png", "y/same.png", "in/e.png")
    lines = [
        "path,label,split",
        r"C:\Users\wu\pics\a.png,crack,train",  # of another machine
        "in/b.png,crack,train",
        "in/b.png, crack ,train",  # equal
        "in/c.png,crack,train",
        "in/c.png,rust,train",  # contradicts
        "in/d.png,crack",  # too short
        "same.png,crack,train",  # which of the two?
        "gone.png,rust,test",
        "in/e.png,rust,holdout",
    ]
    put(tmp_path / "t.csv", "\n".join(lines).encode())
    rows = rows_of("table", tmp_path, split="split", missing=["same.png", "gone.png"])
    found = {path: row.reason for path, row in rows.items()}
    assert found == {
        "t.csv": "metadata",
        "in/a.png": "",
        "in/b.png": "repeated",
        "in/c.png": "ambiguous_pair",
        "in/d.png": "bad_annotation",
        "in/e.png": "bad_annotation",
        "x/same.png": "no_annotation",
        "y/same.png": "no_annotation",
        "same.png": "no_image",
        "gone.png": "no_image",
    }
    assert "line 7" in rows["in/d.png"].detail
    assert "'holdout'" in rows["in/e.png"].detail
    assert "x/same.png, y/same.png" in rows["same.png"].detail
    assert (rows["in/a.png"].split, rows["in/a.png"].labels) == ("train", ["crack"])


def test_one_hot_columns_and_sites_by_column(tmp_path):
    images(tmp_path, "a.png", "b.png", "c.png")
    put(tmp_path / "t.csv", b"file,plant,rust,crack\na.png,north,1,0\nb.png,south,0,0.0\nc.png,south,2,0\n")
    options = {"one_hot": ["crack", "rust"], "site": {"rule": "column", "column": "plant"}}
    rows = rows_of("table", tmp_path, **options)
    assert classes_of("table", tmp_path, **options) == ["crack", "rust"]
    assert [(rows[f"{name}.png"].site, rows[f"{name}.png"].labels) for name in "ab"] == [
        ("north", ["rust"]),
        ("south", []),
    ]
    assert "rust is '2'" in rows["c.png"].detail
    with pytest.raises(UserError, match="no such column"):
        rows_of("table", tmp_path, one_hot=["rust"], site={"rule": "column", "column": "site"})


def test_parquet_with_lists(tmp_path):
    images(tmp_path, "1.png", "2.png", "3.png")
    columns = {"image": ["1.png", "2.png", "3.png"], "labels": [["b", "a"], [], None], "year": [2020.0, None, 1.5]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    rows = rows_of("table", tmp_path / "t.parquet", root=tmp_path)
    assert [rows[f"{n}.png"].labels for n in (1, 2)] == [["a", "b"], []]
    assert rows["3.png"].reason == "no_annotation"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a,b\n1,2\n", "lacks a column"),
        (b"", "no usable head"),
        (b"image,labels,image\n", "image twice"),
        (b'image,labels\na.png,"open\n', "line 2"),
        (b"image,labels\na\0.png,x\n", "NUL"),
    ],
)
def test_unreadable_tables_are_refused(tmp_path, data, words):
    images(tmp_path, "a.png")
    put(tmp_path / "t.csv", data)
    with pytest.raises(UserError, match=words):
        rows_of("table", tmp_path)


def test_which_file_is_the_table(tmp_path):
    images(tmp_path, "a.png")
    with pytest.raises(UserError, match="no table"):
        rows_of("table", tmp_path)
    put(tmp_path / "one.csv", b"image,labels\na.png,x\n")
    put(tmp_path / "two.csv", b"image,labels\na.png,y\n")
    with pytest.raises(UserError, match=r"one\.csv, two\.csv"):
        rows_of("table", tmp_path)
    assert rows_of("table", tmp_path, file="two.csv")["a.png"].labels == ["y"]
    assert recognise(tmp_path, ["a.png", "one.csv"]) == "one.csv with the columns image, labels"
    assert recognise(tmp_path, ["a.png"]) == ""


@pytest.mark.integration
def test_real_data_with_groups_by_column(tmp_path):
    root = unpacked("ppe-site-192", tmp_path)
    rows = rows_of("table", root, separator="|", split="split", site={"rule": "column", "column": "split"})
    machinery = [row.site for row in rows.values() if row.labels and "machinery" in row.labels]
    assert [machinery.count(split) for split in ("train", "valid", "test")] == [2101, 26, 22]


@pytest.mark.integration
def test_real_data_with_a_defect_in_several_classes(tmp_path):
    root = unpacked("neu-det-200", tmp_path)
    rows = rows_of("table", root, separator="|", labels="labels")
    names = ("crazing", "inclusion", "patches", "pitted_surface", "rolled-in_scale", "scratches")
    found = [sum(name in (row.labels or ()) for row in rows.values()) for name in names]
    assert found == [300, 382, 342, 301, 300, 300]  # the pack's README
    assert rows["IMAGES/patches_105.jpg"].reason == "duplicate"  # of patches_101, as the README says
