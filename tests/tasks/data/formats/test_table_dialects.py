"""Tables as programs write them: lists in cells, one-hot columns, boxes in rows, images in cells, bare stems."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from models.errors import UserError
from tasks.data.formats.table.label_cells import read_cell
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.ingest import IngestSettings, ingest
from tests.support.format_rows import classes_of, reasons, rows_of
from tests.support.voc_trees import encoded, make_image, put


def table(root, text, *names):
    for number, name in enumerate(names or ("a.png", "b.png", "c.png")):
        put(root / name, encoded(make_image(number)))
    put(root / "t.csv", text.encode())
    return root


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("['rust', 'crack']", ("rust", "crack")),
        ('["rust","crack"]', ("rust", "crack")),
        ("('rust', 'crack')", ("rust", "crack")),
        ("{'rust'}", ("rust",)),
        ("{rust,crack}", ("rust", "crack")),
        ('{rust,"oil leak"}', ("rust", "oil leak")),
        ("['rust' 'crack']", ("rust", "crack")),
        ("['rust'\n 'crack']", ("rust", "crack")),
        ("array(['rust', 'crack'], dtype=object)", ("rust", "crack")),
        ("[rust, crack]", ("rust", "crack")),
        ("['a;b', 'c, d']", ("a;b", "c, d")),
        ('{"rust": 1, "oil": 0}', ("rust",)),
        ('{"choices": ["rust", "oil"]}', ("rust", "oil")),
        ("['nan', 'rust', None]", ("rust",)),
        ("[]", ()),
        ("rust;crack", ("rust", "crack")),
        ("(other)", ("(other)",)),
        ("rust (deep)", ("rust (deep)",)),
        ("[nan]", None),
        ("NaN", None),
        ("None", None),
        ("<NA>", None),
        ("#N/A", None),
        ("", None),
    ],
)
def test_a_cell_of_labels(cell, labels):
    assert read_cell(cell, ";").labels == labels


def test_a_declared_label_is_never_reinterpreted():
    assert read_cell("None", ";", ["None", "rust"]).labels == ("None",)
    assert read_cell("['NA', 'rust']", ";", ["NA", "rust"]).labels == ("NA", "rust")
    assert read_cell("[x]", ";", ["[x]"]).labels == ("[x]",)


@pytest.mark.parametrize(
    "cell", ["['rust', 'cra", "[['rust']]", '[{"rust": 1}]', "[__import__('os')]", "[" * 9000 + "]" * 9000]
)
def test_a_list_of_other_values_is_refused_and_never_executed(cell):
    found = read_cell(cell, ";")
    assert found.labels is None
    assert "list" in found.fault


def test_written_lists_are_read_and_counted(tmp_path):
    text = "image,labels\na.png,\"['rust', 'crack']\"\nb.png,[]\nc.png,NaN\n"
    rows = rows_of("table", table(tmp_path, text))
    assert rows["a.png"].labels == ["crack", "rust"]
    assert (rows["b.png"].labels, rows["b.png"].status) == ([], "fixed")
    assert reasons(rows)["a.png"] == ("fixed", "label_list")
    assert rows["c.png"].reason == "no_annotation"
    assert "'NaN'" in rows["c.png"].detail
    assert "ingest.classes" in rows["c.png"].detail
    assert rows_of("table", tmp_path, empty="negative")["c.png"].labels == []


def test_another_separator_is_refused_with_the_setting(tmp_path):
    table(tmp_path, "image,labels\na.png,rust|crack\nb.png,rust\nc.png,crack\n")
    with pytest.raises(UserError, match=r"'rust\|crack'(.|\n)*ingest\.table\.separator='\|'"):
        rows_of("table", tmp_path)
    assert rows_of("table", tmp_path, separator="|")["a.png"].labels == ["crack", "rust"]
    table(tmp_path, "image,labels\na.png,open/shut\nb.png,rust\nc.png,crack\n")
    assert rows_of("table", tmp_path)["a.png"].labels == ["open/shut"]


def test_excels_sep_line_sets_the_delimiter(tmp_path):
    for number, first in enumerate(("sep=;", '"sep=;"', "sep=;\r", "SEP=;")):
        text = first + "\nimage;labels\na.png;rust\nb.png;oil, old\nc.png;oil\n;\n"
        rows = rows_of("table", table(tmp_path / str(number), text.replace("SEP", "sep")))
        assert rows["b.png"].labels == ["oil, old"], first
    with pytest.raises(UserError, match="line 3"):
        rows_of("table", table(tmp_path / "x", 'sep=;\nimage;labels\na.png;"open\n'))


MARKS = ["1.0,0.0/0.0,0.0/1.0,1.0", "1,0/0,0/1,1", "True,False/False,False/True,True"]
MARKS += ["yes,no/no,no/yes,yes", "x,/,/X,x", "1,-1/-1,-1/1,1"]


@pytest.mark.parametrize("cells", MARKS)
def test_one_hot_columns_are_detected(tmp_path, cells):
    a, b, c = cells.split("/")
    table(tmp_path, f"filename,rust,crack,split\na.png,{a},train\nb.png,{b},train\nc.png,{c},test\n")
    assert guess_format(tmp_path)[0] == "table"
    rows = rows_of("table", tmp_path)
    assert [rows[f"{n}.png"].labels for n in "abc"] == [["rust"], [], ["crack", "rust"]]
    assert classes_of("table", tmp_path) == ["rust", "crack"]
    assert "rust, crack" in rows["t.csv"].detail


def test_one_hot_columns_among_others_need_the_setting(tmp_path):
    table(tmp_path, "filename,rust,crack,score\na.png,1,0,0.5\nb.png,0,0,0.7\nc.png,1,1,0.1\n")
    for call in (lambda: rows_of("table", tmp_path), lambda: classes_of("table", tmp_path)):
        with pytest.raises(UserError, match=r"score(.|\n)*ingest\.table\.one_hot=\[rust, crack\]"):
            call()
    name, why = guess_format(tmp_path)
    assert name == "images"
    assert "t.csv" in why
    assert "ingest.table.one_hot" in why
    assert rows_of("table", tmp_path, one_hot=["rust"])["c.png"].labels == ["rust"]
    # 1, 0 and -1 in one table: -1 may be "no" or "not known"
    table(tmp_path, "filename,rust,crack\na.png,1,0\nb.png,-1,0\nc.png,1,1\n")
    assert rows_of("table", tmp_path)["b.png"].reason == "bad_annotation"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("photo,labels\na.png,x\n", "no column of images .*photo, labels.*ingest.table.image"),
        ("image,defect\na.png,x\n", "no column of labels .*image, defect.*ingest.table.labels"),
        ("image,labels\ngone.png,x\n", "lists images that are not here, such as gone.png"),
        ("a.png,rust\nb.png,crack\n", "no head"),
        ("image,labels,image\na.png,x,y\n", "image twice"),
    ],
)
def test_near_misses_name_what_a_table_lacks(tmp_path, text, says):
    name, why = guess_format(table(tmp_path, text))
    assert name == "images"
    assert re.search(f"t.csv.*{says}", why), why


def test_names_without_suffix_are_matched_by_stem(tmp_path):
    text = "image,labels\na,rust\nsub/b.v2,oil\nc.jpg,rust\nd,oil\ne,oil\n"
    table(tmp_path, text, "a.png", "sub/b.v2.png", "c.png", "d.png", "d.jpg", "y/e.png")
    rows = rows_of("table", tmp_path, missing=["d"])
    assert (rows["a.png"].labels, rows["sub/b.v2.png"].labels, rows["y/e.png"].labels) == (["rust"], ["oil"], ["oil"])
    assert reasons(rows)["a.png"] == ("ok", "")
    assert reasons(rows)["c.png"] == ("fixed", "near_name")  # it was a .jpg once
    assert rows["d"].reason == "no_image"
    assert "d.jpg, d.png" in rows["d"].detail


BOXES = """filename,class,xmin,ymin,xmax,ymax
a.png,rust,1,1,9,9
a.png,crack,2,2,8,8
a.png,rust,3,3,7,7
b.png,oil,5,5,1,1
c.png,,,,,
"""


def test_rows_of_boxes_are_joined(tmp_path):
    rows = rows_of("table", table(tmp_path, BOXES))
    assert (rows["a.png"].labels, rows["a.png"].reason) == (["crack", "rust"], "")
    assert rows["b.png"].reason == "odd_box"
    assert rows["c.png"].reason == "no_annotation"
    assert "a row for each box" in rows["t.csv"].detail
    assert rows_of("table", tmp_path, several_rows="refuse")["a.png"].reason == "ambiguous_pair"


def test_several_rows_without_boxes_are_refused_with_the_setting_that_joins(tmp_path):
    table(tmp_path, "image,label\na.png,rust\na.png,crack\nb.png,oil\nc.png,oil\n")
    found = rows_of("table", tmp_path)["a.png"]
    assert found.reason == "ambiguous_pair"
    assert "ingest.table.several_rows=join" in found.detail
    assert rows_of("table", tmp_path, several_rows="join")["a.png"].labels == ["crack", "rust"]


def test_two_label_columns_are_ambiguous(tmp_path):
    table(tmp_path, "image,label,category\na.png,1,rust\nb.png,2,oil\nc.png,1,rust\n")
    with pytest.raises(UserError, match=r"label, category(.|\n)*ingest\.table\.labels"):
        rows_of("table", tmp_path)
    assert rows_of("table", tmp_path, labels="category")["a.png"].labels == ["rust"]


def test_unlisted_images(tmp_path):
    root = table(tmp_path / "in", "image,labels\na.png,rust\nb.png,oil\n", *(f"{letter}.png" for letter in "abcde"))
    settings = IngestSettings.model_validate({"source": "table", "path": root, "image_size": 32})
    with pytest.raises(UserError, match=r"3 images are in no list(.|\n)*ingest\.unlisted=ignore"):
        ingest(settings, tmp_path / "out", 0)
    ignoring = settings.model_copy(update={"unlisted": "ignore"})
    assert ingest(ignoring, tmp_path / "out", 0)["reasons"]["not_listed"] == 3
    alone = settings.model_copy(update={"path": root / "t.csv"})
    assert ingest(alone, tmp_path / "out2", 0)["images"] == 2
    coco = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "categories": [{"id": 1, "name": "rust"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1}],
    }
    put(root / "set.json", json.dumps(coco).encode())
    settings = IngestSettings.model_validate({"source": "coco", "path": root, "unlisted": "ignore", "image_size": 32})
    assert ingest(settings, tmp_path / "out3", 0)["reasons"]["not_listed"] == 4


def hub_table(path, rows, names=("rust", "oil"), **columns):
    images = [{"bytes": data, "path": name} for name, data in rows]
    columns = {"image": images, **columns}
    features = {"label": {"names": list(names), "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    content = pa.table(columns)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content.replace_schema_metadata(metadata), path, row_group_size=2)


def test_images_in_the_cells_of_a_parquet_file(tmp_path):
    some = [(f"{n}.png", encoded(make_image(n))) for n in range(5)]
    hub_table(
        tmp_path / "data/train-00000-of-00001.parquet",
        [*some[:4], ("bad.png", b"\x00\x1b[31m")],
        label=[0, 1, 0, -1, 1],
    )
    hub_table(tmp_path / "data/test-00000-of-00001.parquet", [some[4], ("x.png", None)], label=[1, 0])
    put(tmp_path / "README.md", b"a data set")
    name, why = guess_format(tmp_path)
    assert name == "table"
    assert "\x1b" not in why
    cells = [f"data/train-00000-of-00001.parquet#{n}" for n in range(5)]
    cells += [f"data/test-00000-of-00001.parquet#{n}" for n in range(2)]
    rows = rows_of("table", tmp_path, missing=cells)
    first = rows["data/train-00000-of-00001.parquet#0"]
    assert (first.labels, first.status, first.width > 0) == (["rust"], "ok", True)
    assert rows["data/train-00000-of-00001.parquet#3"].reason == "no_annotation"
    assert rows["data/train-00000-of-00001.parquet#4"].reason == "not_an_image"
    assert rows["data/test-00000-of-00001.parquet#1"].reason == "no_image"
    assert classes_of("table", tmp_path) == ["rust", "oil"]
    settings = IngestSettings.model_validate(
        {"source": "table", "path": tmp_path, "image_size": 32, "max_bad_share": 0.9, "split": {"scheme": "given"}}
    )
    assert ingest(settings, tmp_path.parent / "out", 0)["splits"] == {"train": 2, "val": 1, "test": 1}


def test_messages_never_contain_the_bytes_of_a_cell(tmp_path):
    noise = bytes(range(256)) * 300
    pq.write_table(pa.table({"blob": [noise], "label": ["x"]}), tmp_path / "t.parquet")
    result = CliRunner().invoke(app, ["data", "check", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "out")])
    assert len(result.output) < 4000
    assert "\x00" not in result.output
    assert "\\x1b" not in result.output
    pq.write_table(pa.table({"image": ["a.png"], "label": [noise]}), tmp_path / "t.parquet")
    result = CliRunner().invoke(
        app, ["data", "check", str(tmp_path), "--format", "table", "--out", str(tmp_path / "out")]
    )
    assert len(result.output) < 6000
