"""Ambiguous and unusual inputs: each is refused with the setting that decides, or gets the right row."""

import base64
import json
import re
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import UserError
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.similar_labels import similar_names
from tests.support.format_rows import reasons, rows_of
from tests.support.voc_trees import encoded, make_image, put, voc_xml

PNG = [encoded(make_image(number, 16, 16)) for number in range(6)]


def tree(root, files, images=6):
    """Files of text or bytes, and ``0.png`` to ``5.png`` at the top."""
    for number in range(images):
        put(root / f"{number}.png", PNG[number])
    for name, content in files.items():
        put(root / name, content if isinstance(content, bytes) else content.encode())
    return root


def table(labels, head="image,label"):
    return head + "\n" + "".join(f"{number}.png,{label}\n" for number, label in enumerate(labels))


def in_folders(*folders):
    return {f"{folder}/{number}.png": PNG[number] for number, folder in enumerate(folders)}


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


BASE64 = base64.b64encode(encoded(make_image(1, 40, 40))).decode()

#: Ambiguous inputs: reader, files, words of the message.
AMBIGUOUS = {
    "only combinations, comma": ("table", {"t.csv": table(['"a,b"', '"b,c"', '"c,a"'])}, "separator=','"),
    "only combinations, bar": ("table", {"t.csv": table(["a|b", "a|c", "a|d"])}, r"separator='\|'"),
    "only combinations, blank": ("table", {"t.csv": table(["a b", "b c", "c a"])}, "separator=' '"),
    "only combinations, plus": ("table", {"t.csv": table(["a+b", "b+c", "c+a"])}, r"separator='\+'"),
    "base64": ("table", {"t.csv": table(["a"]) + f"{BASE64},a\n"}, "base64 text(.|\n)*line 3"),
    "data address": ("table", {"t.csv": table(["a"]) + '"data:image/png;base64,iVBO",a\n'}, "base64 text"),
    "a text as name": ("table", {"t.csv": table(["a"]) + f"{'It is said that. ' * 99},a\n"}, "ingest.table.image"),
    "a workbook called CSV": ("table", {"t.csv": b"PK\x03\x04" + b"\0" * 90}, "Excel workbook(.|\n)*as CSV"),
    "YOLO from 1": (
        "yolo",
        {"0.txt": "1 .5 .5 .2 .2", "1.txt": "2 .5 .5 .2 .2", "classes.txt": "oil\nrust"},
        "start at 1(.|\n)*names: {1: oil",
    ),
    "YOLO's names numbered": (
        "yolo",
        {"0.txt": "0 .5 .5 .2 .2", "classes.txt": "1 oil\n0 rust"},
        "numbered(.|\n)*YAML",
    ),
    "half-width kana": ("table", {"t.csv": table(["ｻﾋﾞ", "ok"]).encode("cp932")}, "cp932: ｻﾋﾞ"),
    "two signs of Big5": ("table", {"t.csv": table(["異常", "ok"]).encode("big5")}, "big5: 異常"),
    "one letter of cp1250": ("table", {"t.csv": table(["ł", "ok"]).encode("cp1250")}, "cp1250: ł"),
    "a capital of Macs": ("table", {"t.csv": table(["Öl", "ok"]).encode("mac_roman")}, "mac_roman: Öl"),
    "sites around classes": (
        "folder",
        in_folders("A/oil", "A/rust", "B/oil", "B/rust"),
        "site.rule=folder(.|\n)*level",
    ),
    "one inner folder again": ("folder", in_folders("oil/small", "oil/big", "rust/small"), "ingest.folder.level"),
}

#: Near misses: files, words of the reason.
NEAR_MISSES = {
    "spreadsheet": ({"t.xlsx": b"PK\x03\x04"}, "t.xlsx is a spreadsheet(.*)CSV"),
    "packed": ({"t.csv.gz": b"\x1f\x8b"}, "t.csv.gz is an archive"),
    "list of images": ({"t.txt": "0.png oil\n1.png rust\n"}, "t.txt lists images(.*)csv"),
    "records": ({"t.json": json.dumps([{"image": "0.png", "label": "oil"}])}, "t.json is a list of records"),
    "mapping": ({"t.json": json.dumps({"0.png": "oil"})}, "t.json maps images"),
    "results alone": ({"t.json": json.dumps([{"image_id": 0, "category_id": 1}])}, "only annotations"),
    "a JSON cut short": ({"t.json": '{"images": [{"id": 1, "file_na'}, "t.json is not valid JSON"),
    "tables below": ({"a/t.csv": "image,label\n", "b/t.csv": ""}, "a/t.csv is a table in a subfolder"),
    "Kaggle's folders": (in_folders("train_images", "test_images"), "nothing that names labels"),
    "CycleGAN's folders": (in_folders("trainA", "trainB", "testA", "testB"), "nothing that names labels"),
    "Open Images": ({"t.csv": "ImageID,LabelName,Confidence\n0,/m/01,1\n1,/m/02,0\n"}, "Open Images"),
    "a folder around all": (in_folders("set/oil", "set/rust"), "set holds folders of images(.*)PATH"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_ambiguous_inputs_are_refused_with_the_setting(case, tmp_path):
    source, files, words = AMBIGUOUS[case]
    with pytest.raises(UserError, match=words) as caught:
        rows_of(source, tree(tmp_path, files, images=0 if source == "folder" else 6))
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_unsupported_annotation_files_are_reported_with_advice(case, tmp_path):
    files, words = NEAR_MISSES[case]
    images = 0 if any("/" in name for name in files) else 3
    name, why = guess_format(tree(tmp_path, files, images))
    assert name == "images"
    assert re.search(words, why), why


@pytest.mark.parametrize(
    "labels",
    [
        ["dark rust", "light rust", "dark oil", "light oil"],
        ["oil leak", "paint peeling", "broken glass"],
        ["n/a?", "on/off", "in/out"],
        ["vehicle/car", "vehicle/bus", "animal/cat"],
        ["C++", "C"],
        ["1", "2", "3"],
    ],
)
def test_names_of_several_words_stay_one_label(labels, tmp_path):
    rows = rows_of("table", tree(tmp_path, {"t.csv": table(labels)}, images=len(labels)))
    assert [rows[f"{number}.png"].labels for number in range(len(labels))] == [[label] for label in labels]


@pytest.mark.parametrize(
    "folders",
    [
        ("oil/session_1", "oil/session_2", "rust/session_1"),
        ("oil/2024-01", "rust/2024-01", "rust/2024-02"),
        ("oil/train", "oil/test", "rust/train"),
        ("oil/a", "rust/b"),
    ],
)
def test_folders_below_a_class_do_not_matter(folders, tmp_path):
    rows = rows_of("folder", tree(tmp_path, in_folders(*folders), images=0))
    assert {row.labels[0] for row in rows.values()} == {"oil", "rust"}


def test_a_configured_class_level_is_used(tmp_path):
    root = tree(tmp_path, in_folders("A/oil", "A/rust", "B/oil", "B/rust"), images=0)
    assert {row.labels[0] for row in rows_of("folder", root, level=1).values()} == {"A", "B"}
    assert {row.labels[0] for row in rows_of("folder", root, level=2).values()} == {"oil", "rust"}
    sites = rows_of("folder", root, site={"rule": "folder"})
    assert {(row.site, row.labels[0]) for row in sites.values()} == {(s, c) for s in "AB" for c in ("oil", "rust")}


def test_class_numbers_without_a_name_are_never_negatives(tmp_path):
    features = {"image": {"_type": "Image"}, "label": {"names": ["oil", "rust"], "_type": "ClassLabel"}}
    content = pa.table({"image": PNG, "label": [0, 1, 2, -1, 0, 1]})
    content = content.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(content, tmp_path / "train.parquet")
    name, _ = guess_format(tmp_path)
    rows = rows_of(name, tmp_path, missing=[f"train.parquet#{n}" for n in range(6)], empty="negative")
    assert rows["train.parquet#0"].labels == ["oil"]
    found = reasons(rows)
    assert found["train.parquet#2"] == ("quarantined", "bad_annotation")
    assert found["train.parquet#3"] == ("quarantined", "no_annotation")


def test_images_as_numbers_in_parquet_are_refused_briefly(tmp_path):
    parquet(tmp_path / "t.parquet", image=[[[0] * 16] * 16] * 2, label=["a", "b"])
    with pytest.raises(UserError, match="lists of numbers") as caught:
        rows_of("table", tmp_path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("word", ["it\u2019s ok", "5 µm", "20 °C", "m²", "± 5", "„gut“", "10 €", "Öl", "Riß", "grün"])
def test_one_word_of_cp1252_is_read(word, tmp_path):
    root = tree(tmp_path, {"t.csv": table([word, "ok"]).encode("cp1252")}, images=2)
    assert rows_of("table", root)["0.png"].labels == [word]


def test_iso_8859_2_polish_is_not_read_as_cp1250(tmp_path):
    labels = ["łódź", "śruba", "żółty"]
    root = tree(tmp_path, {"t.csv": table(labels).encode("iso8859_2")}, images=3)
    assert [rows_of("table", root)[f"{number}.png"].labels[0] for number in range(3)] == labels


@pytest.mark.parametrize(("yes", "no"), [("+", "-"), ("☑", "☐"), ("WAHR", "FALSCH"), ("Yes", "No"), ("x", "")])
def test_one_hot_columns_with_other_words_for_yes_and_no(yes, no, tmp_path):
    lines = [f"0.png,{yes},{no}", f"1.png,{no},{yes}", f"2.png,{no},{no}"]
    root = tree(tmp_path, {"t.csv": "\n".join(["image,oil,rust", *lines])}, images=3)
    assert guess_format(root)[0] == "table"
    rows = rows_of("table", root)
    assert [rows[f"{number}.png"].labels for number in range(3)] == [["oil"], ["rust"], []]


def test_similar_labels_and_sites_are_reported():
    (labels, sites) = similar_names(["oil leak", "Oil-leak", "1", "01", "1.0", "rust"], ["Köln", "köln", "Bonn"])
    assert "'Oil-leak', 'oil leak'" in labels
    assert "'01', '1', '1.0'" in labels
    assert "rust" not in labels
    assert "'Köln', 'köln'" in sites
    assert similar_names(["a", "b", "10", "1"], ["A 1", "A 2", "A1"]) == []


def test_thumbnails_and_sync_conflicts_are_litter(tmp_path):
    aside = (
        "thumbs/0.png",
        "_thumb/0.png",
        "thumb_0.png",
        "0_thumb.png",
        "0.sync-conflict-20240101-120000-ABCDEFG.png",
    )
    files = {f"oil/{name}": encoded(make_image(9 + number)) for number, name in enumerate(aside)}
    kept = {"oil/thumb_7.png": PNG[2], "thumbs/0.png": PNG[3], "rust/up_thumb.png": PNG[4]}
    rows = rows_of("folder", tree(tmp_path, in_folders("oil", "rust") | files | kept, images=0))
    found = reasons(rows)
    assert {found[name] for name in files} == {("ignored", "litter")}
    assert {found[name][0] for name in ("oil/0.png", "rust/1.png", *kept)} == {"ok"}


def test_unused_annotations_of_another_format_are_reported(tmp_path):
    files = {f"{number}.xml": voc_xml(["oil"], size=(16, 16)) for number in range(3)}
    files |= {f"{number}.txt": "0 .5 .5 .2 .2\n" for number in range(3)} | {"classes.txt": "rust\n"}
    name, why = guess_format(tree(tmp_path, files, images=3))
    assert (name, "also found but not used, yolo: 3 text files" in why) == ("voc", True)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"), (b"<!DOCTYPE html><html>", "HTML page")],
)
def test_lfs_pointers_and_html_pages_are_reported(data, words, tmp_path):
    rows = rows_of("images", tree(tmp_path, {"a.jpg": data}, images=1))
    assert (rows["a.jpg"].reason, words in rows["a.jpg"].detail) == ("not_an_image", True)


def test_an_image_of_floats_is_refused_with_advice(tmp_path):
    rows = rows_of("images", tree(tmp_path, {"a.tif": encoded(make_image(0).convert("F"), "TIFF")}, images=0))
    assert (rows["a.tif"].reason, "convert it to 8 or 16 bits" in rows["a.tif"].detail) == ("bad_mode", True)


def tiff_of_bands(bands):
    """An uncompressed TIFF of 16 x 16 with so many bands of 8 bits, RGB first."""
    tags = {256: 16, 257: 16, 259: 1, 262: 2, 277: bands, 278: 16, 284: 1}
    entries = [struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items()]
    after = 8 + 2 + 12 * (len(tags) + 4) + 4
    entries += [
        struct.pack("<HHII", 258, 3, bands, after),
        struct.pack("<HHII", 338, 3, bands - 3, after + 2 * bands)
        if bands > 5
        else struct.pack("<HHIHH", 338, 3, 2, 0, 0),
        struct.pack("<HHII", 273, 4, 1, after + 4 * bands),
        struct.pack("<HHII", 279, 4, 1, 256 * bands),
    ]
    entries.sort(key=lambda entry: struct.unpack("<H", entry[:2]))
    head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return head + struct.pack(f"<{bands}H", *[8] * bands) + bytes(2 * bands) + bytes(range(256)) * bands


def test_tiffs_with_many_bands_are_refused(tmp_path):
    rows = rows_of("images", tree(tmp_path, {"a.tif": tiff_of_bands(5)}, images=1))
    assert (rows["a.tif"].reason, "5 bands" in rows["a.tif"].detail) == ("bad_mode", True)
