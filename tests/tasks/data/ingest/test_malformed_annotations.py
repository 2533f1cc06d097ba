"""Annotations and lists as users have them: each one is made here, ingested, and ends with the right status."""

import json
import re

import numpy as np
import pytest

from models.errors import UserError
from tasks.data.partition import PartitionSettings, partition
from tasks.evaluation.metric_sets import metric_set, site_rows
from tasks.evaluation.metrics import multilabel_metrics
from tests.support.format_rows import reasons, rows_of
from tests.support.image_trees import OK, bad, fixed, ingested, pairs, tree
from tests.support.voc_trees import encoded, make_image, put, voc_xml

READ = ("ok", "annotation")
BOX = b" 0.5 0.5 0.2 0.2\n"


def refused(root, out, source, *words, **settings):
    """The message with which an ingest refuses, checked for these words; nothing is written."""
    with pytest.raises(UserError) as caught:
        ingested(root, out, source, **settings)
    assert all(word in str(caught.value) for word in words), (words, str(caught.value))
    assert not out.exists()


def test_encodings_of_annotations(tmp_path):
    label = "绝缘子镕"  # the last one is in GBK, but not in GB2312
    gbk, far = label.encode("gbk"), voc_xml([label + "㐀"], encoding="gb18030")
    declared = voc_xml([label], encoding="utf-8").replace(label.encode(), gbk)
    repaired = {
        "gbk": voc_xml([label], encoding="gbk"),
        "gb2312": declared.replace(b'"utf-8"', b'"GB2312"'),
        "gb18030": far,
        "false": declared,
        "none": voc_xml([label]).replace(label.encode(), gbk),
    }
    fine = {
        "bom": b"\xef\xbb\xbf" + voc_xml([label], encoding="utf-8"),
        "utf16": voc_xml([label], encoding="utf-16"),
        "utf8": voc_xml([label]),
    }
    rows = rows_of("voc", pairs(tmp_path, repaired | fine | {"noise": voc_xml(["x"]).replace(b"x", b"\xff\xff")}))
    for name in repaired | fine:
        assert rows[f"{name}.png"].labels == [label + "㐀" * (name == "gb18030")], name
    assert {name: reasons(rows)[f"{name}.xml"] for name in repaired} == dict.fromkeys(repaired, fixed("encoding"))
    assert {name: reasons(rows)[f"{name}.xml"] for name in fine} == dict.fromkeys(fine, READ)
    assert (rows["noise.png"].reason, rows["noise.xml"].reason) == ("bad_annotation", "bad_xml")


def test_xml_entities_are_refused(tmp_path):
    use = b"<annotation><object><name>&z;</name></object></annotation>"
    laughs = b'<!ENTITY y "yyyyyyyyyy">' + b"".join(
        b'<!ENTITY %c "%s">' % (name, b"&%c;" % before * 10)
        for before, name in zip(b"yabcdefgh", b"abcdefghz", strict=True)
    )
    put(tmp_path / "secret", b"secret")
    outside = b'<!ENTITY z SYSTEM "%s">' % (tmp_path / "secret").as_uri().encode()
    odd = {name: b"<!DOCTYPE a [" + text + b"]>" + use for name, text in {"bomb": laughs, "outside": outside}.items()}
    rows = rows_of("voc", pairs(tmp_path, odd))
    for name in odd:
        assert (rows[f"{name}.xml"].status, rows[f"{name}.xml"].reason) == bad("unsafe_xml")
        assert (rows[f"{name}.png"].reason, rows[f"{name}.png"].labels) == ("bad_annotation", None)


def test_truncated_xml_is_quarantined(tmp_path):
    cut = b"<annotation>\n<object>\n<name>crack</name></obj"
    rows = rows_of("voc", pairs(tmp_path, {"empty": b"", "cut": cut, "half": voc_xml(["crack"])[:-20]}))
    assert {rows[f"{name}.xml"].reason for name in ("empty", "cut", "half")} == {"bad_xml"}
    assert {rows[f"{name}.png"].reason for name in ("empty", "cut", "half")} == {"bad_annotation"}
    assert "line 3" in rows["cut.xml"].detail
    assert rows["empty.xml"].detail == "zero bytes"


def test_unusual_voc_objects(tmp_path):
    box = b"<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    odd = {
        "negative": voc_xml([]),
        "one": voc_xml(["crack"]),  # without difficult, as all of these
        "root": b"<doc><object><name>crack</name></object></doc>",
        "boxless": voc_xml(["crack", "oil"], box=None),
        "boxes": voc_xml(["crack"]).replace(b"</object>", box + b"</object>"),
    }
    root = pairs(tmp_path / "in", odd)
    found, without = ingested(root, tmp_path / "a", "voc"), ingested(root, tmp_path / "b", "voc", keep_negatives=False)
    assert {row.status for row in found.rows.values()} == {"ok"}
    one = ["crack"]
    assert found.labels == {
        "negative.png": [], "one.png": one, "root.png": one, "boxless.png": ["crack", "oil"], "boxes.png": one
    }  # fmt: skip
    assert (found.summary["negatives"], without.summary["negatives"], without.summary["images"]) == (1, 0, 4)
    assert (without.rows["negative.png"].status, without.rows["negative.png"].reason) == ("ignored", "negative")


def test_fractional_box_coordinates(tmp_path):
    odd = {"plain": ("1.5", "2.0", "3.25", "4e0"), "thin": ("1.2", "1.2", "1.8", "9.0"), "over": (1, 1, "40.4", 9)}
    rows = rows_of("voc", pairs(tmp_path, {name: voc_xml(["crack"], box=box) for name, box in odd.items()}))
    assert {rows[f"{name}.png"].status for name in odd} == {"ok"}
    # Whole numbers would make "thin" empty and put "over" inside the 40 pixels.
    assert [rows[f"{name}.xml"].reason for name in odd] == ["annotation", "annotation", "odd_box"]


def test_invalid_boxes_keep_the_label(tmp_path):
    odd = {"negative": (-1, 0, 5, 5), "outside": (30, 1, 41, 5), "inverted": (9, 1, 3, 5), "empty": (5, 5, 5, 9)}
    root = pairs(tmp_path / "in", {name: voc_xml(["crack"], box=box) for name, box in odd.items()})
    found = ingested(root, tmp_path / "out", "voc", max_bad_share=0)
    assert found.labels == {f"{name}.png": ["crack"] for name in odd}
    assert reasons(found.rows) == {f"{n}.png": OK for n in odd} | {f"{n}.xml": fixed("odd_box") for n in odd}
    assert found.summary["reasons"]["odd_box"] == 4


def test_a_wrong_declared_size_is_noted(tmp_path):
    sizes = {"zero": (0, 0), "false": (400, 300), "words": ("wide", "high")}
    root = pairs(tmp_path, {name: voc_xml(["crack"], size=size) for name, size in sizes.items()})
    pairs(root, {"none": re.sub(rb"<size>.*</size>", b"", voc_xml(["crack"]))}, first=10)
    rows = rows_of("voc", root)
    for name in (*sizes, "none"):
        assert (rows[f"{name}.png"].width, rows[f"{name}.png"].height, rows[f"{name}.png"].status) == (40, 30, "ok")
        assert rows[f"{name}.xml"].reason == "annotation"
    assert rows["false.xml"].detail == "declares 400 x 300, the image has 40 x 30"


def test_repeated_labels_and_rows(tmp_path):
    rows = rows_of("voc", pairs(tmp_path / "voc", {"a": voc_xml(["oil", "crack", "oil"])}))
    assert rows["a.png"].labels == ["crack", "oil"]
    root = tree(tmp_path / "table", {f"{name}.png": make_image(i) for i, name in enumerate("abc")})
    lines = ["image,labels", "a.png,crack;oil", "a.png,oil;crack;oil", "b.png,crack", "b.png,oil", "c.png,oil"]
    put(root / "t.csv", "\n".join(lines).encode())
    rows = rows_of("table", root)
    expected = {"a.png": fixed("repeated"), "b.png": bad("ambiguous_pair"), "c.png": OK, "t.csv": ("ok", "metadata")}
    assert reasons(rows) == expected
    assert (rows["a.png"].labels, rows["b.png"].labels) == (["crack", "oil"], None)
    refused(root, tmp_path / "out", "table", "b.png: ambiguous_pair", "line 4, line 5", max_bad_share=0.02)


def test_unknown_labels_and_aliases(tmp_path):
    names = {"blank": "crack ", "alias": "cracck", "plain": "crack", "composed": "r\u00e9seau", "apart": "re\u0301seau"}
    root = pairs(tmp_path / "in", {name: voc_xml([label]) for name, label in names.items()})
    settings = {"classes": ["r\u00e9seau", "crack"], "label_aliases": {"cracck": "crack"}}
    found = ingested(root, tmp_path / "out", "voc", **settings)
    assert found.summary["labels"] == {"r\u00e9seau": 2, "crack": 3}
    assert found.summary["aliases"] == {"cracck": 1}
    unknown = {"n1": "Crack", "n2": "craks", "n3": "craks", "n4": "zzzz"}
    pairs(root, {name: voc_xml([label]) for name, label in unknown.items()}, first=50)
    cased = "'Crack' in 1 image(s), nearest known label 'crack': n1.png"
    twice = "'craks' in 2 image(s), nearest known label 'crack': n2.png, n3.png"
    refused(root, tmp_path / "out2", "voc", cased, twice, "'zzzz' in 1 image(s), no known label", **settings)


def test_images_and_annotations_without_a_partner(tmp_path):
    root = pairs(tmp_path / "in", {"good": voc_xml(["crack"])})  # its filename and path are false
    tree(root, {"lonely.png": make_image(1), "orphan.xml": voc_xml(["oil"]), "twice.xml": voc_xml(["oil"])})
    tree(root, {"twice.png": make_image(2), "twice.bmp": encoded(make_image(3), "BMP")})
    assert reasons(rows_of("voc", root)) == {
        "good.png": OK,
        "good.xml": READ,
        "lonely.png": bad("no_annotation"),
        "orphan.xml": bad("no_image"),
        "twice.png": bad("ambiguous_pair"),
        "twice.bmp": bad("ambiguous_pair"),
        "twice.xml": bad("annotation_unused"),
    }
    found = ingested(root, tmp_path / "out", "voc")
    assert (found.labels, found.summary["negatives"]) == ({"good.png": ["crack"]}, 0)
    assert found.rows["lonely.png"].labels is None  # unlabelled


def test_yolo_label_files(tmp_path):
    texts = {
        "box": b"1" + BOX,
        "polygon": b"0 0.1 0.1 0.5 0.1 0.5 0.5\n",
        "empty": b"",
        "blank": b"\n1" + BOX + b"\n \n",
    }
    texts["range"] = b"0" + BOX + b"7" + BOX
    root = tree(tmp_path / "in", {f"images/{name}.png": make_image(i) for i, name in enumerate(texts)})
    tree(root, {f"labels/{name}.txt": text for name, text in texts.items()})
    refused(root, tmp_path / "out", "yolo", "nothing names the class indices", "ingest.yolo.names")
    for names in (b"names: [rust, oil]", b"names: {1: oil, 0: rust}"):
        put(root / "data.yaml", names)
        rows = rows_of("yolo", root)
        labels = {name: rows[f"images/{name}.png"].labels for name in texts}
        assert labels == {"box": ["oil"], "polygon": ["rust"], "empty": [], "blank": ["oil"], "range": None}
        assert {rows[f"labels/{name}.txt"].reason for name in texts if name != "range"} == {"annotation"}
        assert (rows["labels/range.txt"].status, rows["labels/range.txt"].reason) == bad("bad_text")
        assert rows["labels/range.txt"].detail.startswith("line 2: index 7")
    refused(root, tmp_path / "out", "yolo", "labels/range.txt", max_bad_share=0.02)


def test_coco_ids_and_missing_images(tmp_path):
    names = ("gap", "none", "dangling", "twice")
    root = tree(tmp_path / "in", {f"{name}.png": make_image(i) for i, name in enumerate(names)})
    files = {1: "gap.png", 2: "none.png", 3: "dangling.png", 4: "twice.png", 5: "twice.png", 6: "gone.png"}
    marks = [(1, 90), (1, 3), (3, 4), (4, 3), (5, 3), (6, 3), (77, 3)]
    content = {
        "images": [{"id": key, "file_name": name} for key, name in files.items()],
        "annotations": [{"id": 100 + i, "image_id": a, "category_id": c} for i, (a, c) in enumerate(marks)],
        "categories": [{"id": 90, "name": "rust"}, {"id": 3, "name": "crack"}, {"id": 17, "name": "never"}],
    }
    put(root / "x.json", json.dumps(content).encode())
    rows = rows_of("coco", root, missing=["gone.png", "x.json#image_id 77"])
    assert reasons(rows) == {
        "gap.png": OK,
        "none.png": bad("doubtful"),  # the annotation of image 77 may be its own
        "x.json#image_id 77": bad("dangling"),
        "dangling.png": bad("bad_annotation"),
        "twice.png": fixed("repeated"),
        "gone.png": bad("no_image"),
        "x.json": ("ok", "metadata"),
    }
    assert [rows[f"{name}.png"].labels for name in ("gap", "none", "twice")] == [["crack", "rust"], None, ["crack"]]
    assert rows["dangling.png"].detail == "category id 4 is not among the categories"
    assert "1 annotation(s) of no listed image" in rows["x.json"].detail
    assert ingested(root, tmp_path / "out", "coco").summary["labels"] == {"crack": 2, "never": 0, "rust": 1}


def test_class_folders(tmp_path):
    root = tree(tmp_path / "in", {"crack/1.png": make_image(0), "oil/2.png": make_image(1)})
    (root / "rust").mkdir()
    for classes in (None, ["oil", "rust", "crack"]):
        found = ingested(root, tmp_path / f"out{classes is None}", classes=classes)
        assert found.summary["labels"] == {"crack": 1, "oil": 1, "rust": 0}
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", tmp_path / "o", "folder", "no images found", str(tmp_path / "empty"), "CLASS/NAME.jpg")
    stray = tree(tmp_path / "stray", {"photos/crack/1.png": make_image(0), "photos/oil/2.png": make_image(1)})
    refused(stray, tmp_path / "o", "folder", str(stray / "photos"), "ingest.folder.level")
    found = ingested(stray, tmp_path / "level", folder={"level": 2})
    assert found.labels == {"photos/crack/1.png": ["crack"], "photos/oil/2.png": ["oil"]}


def test_csv_encodings_and_separators(tmp_path):
    plain = "image,labels\na.png,裂纹;锈\nb.png,裂纹\n"
    texts = {
        "gbk": plain.encode("gbk"),
        "bom": plain.encode("utf-8-sig"),
        "utf-16": plain.encode("utf-16"),
        "semicolon": 'image;labels\r\na.png;"裂纹;锈"\r\nb.png;裂纹\r\n'.encode(),
        "tab": plain.replace(",", "\t").encode("gb18030"),
    }
    for name, data in texts.items():
        root = tree(tmp_path / name, {"a.png": make_image(0), "b.png": make_image(1), "t.csv": data})
        rows = rows_of("table", root)
        assert (rows["a.png"].labels, rows["b.png"].labels) == (["裂纹", "锈"], ["裂纹"]), name
        assert rows["t.csv"].reason == ("encoding" if name in ("gbk", "tab") else "metadata"), name
    put(root / "t.csv", b"image,labels\na.png,x|y\nb.png,x\n")
    assert rows_of("table", root)["a.png"].labels == ["x|y"]  # the separator is not guessed
    put(root / "t.csv", b"image,defects,station\na.png,x,north\n")
    refused(root, tmp_path / "out", "table", "lacks a column", "ingest.table.labels", "image, defects, station")


def test_clients_without_some_labels(tmp_path):
    names = [f"north/train/{label}/{i}.png" for i in range(3) for label in ("crack", "oil")]
    names += ["south/train/crack/1.png", "west/test/oil/1.png", "north/test/crack/9.png"]
    root = tree(tmp_path / "in", {name: make_image(i) for i, name in enumerate(names)})
    settings = {"site": {"rule": "folder"}, "split": {"scheme": "given", "val": 0}, "classes": ["crack", "oil", "rust"]}
    ingested(root, tmp_path / "data", **settings)
    summary = partition(tmp_path / "data", PartitionSettings(scheme="natural", min_size=1), tmp_path / "clients", 0)
    labels = {client: entry["labels"] for client, entry in summary["clients"].items()}
    assert labels == {"north": {"crack": 3, "oil": 3, "rust": 0}, "south": {"crack": 1, "oil": 0, "rust": 0}}
    assert summary["sites_without_training_images"] == ["west"]
    assert np.isfinite(summary["mean_js_distance"])
    with pytest.raises(UserError, match=r"min_size(.|\n)*south") as caught:
        partition(tmp_path / "data", PartitionSettings(scheme="natural", min_size=2), tmp_path / "none", 0)
    assert "at least 2" in str(caught.value)
    # Label 0: the positive is ranked first, AP 1. Label 1: positives on ranks 1 and 3, AP (1 + 2/3) / 2. Label 2: none.
    scores = np.array([[0.9, 0.9, 0.6], [0.2, 0.6, 0.1], [0.1, 0.5, 0.7]])
    targets = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0]])
    found = multilabel_metrics(scores, targets)
    assert found["macro_ap"] == pytest.approx((1 + 5 / 6) / 2)
    assert found["classes_used"] == 2
    sites = site_rows(metric_set("multi_label"), np.array(["a", "b", "a"]), scores, targets)
    assert (sites["a"]["classes_used"], sites["b"]["classes_used"]) == (2, 0)
    assert np.isnan(sites["b"]["macro_ap"])
