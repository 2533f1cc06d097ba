"""Malformed and unusual inputs as small folders: the files, and the manifest row that each must get."""

import csv
import gzip
import io
import json
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from tests.support.voc_trees import encoded, make_image, voc_xml

Files = dict[str, bytes]
#: path -> (status, reason), and with more entries width and height, or the labels
Expected = dict[str, tuple]
OK, NOTE, NEGATIVE = ("ok", ""), ("ok", "annotation"), ("ok", "", [])


def bad(reason: str) -> tuple[str, str]:
    return "quarantined", reason


def fixed(reason: str) -> tuple[str, str]:
    return "fixed", reason


def pair(name: str, data: bytes | None = None, xml: bytes | None = None, seed: int = 0) -> Files:
    """Return an image and its VOC annotation."""
    stem = name.rsplit(".", 1)[0]
    return {
        f"JPEGImages/{name}": encoded(make_image(seed + len(name))) if data is None else data,
        f"Annotations/{stem}.xml": voc_xml(["crack"]) if xml is None else xml,
    }


def images(*cases: tuple) -> tuple[Files, Expected]:
    """Return VOC pairs for (name, data, the image's expected row)."""
    files: Files = {}
    for name, data, _ in cases:
        files |= pair(name, data)
    return files, {f"JPEGImages/{name}": row for name, _, row in cases}


def xmls(*cases: tuple) -> tuple[Files, Expected]:
    """Return VOC pairs for (stem, XML, the XML's expected row, the image's expected row)."""
    files: Files = {}
    expected: Expected = {}
    for number, (stem, xml, row, image) in enumerate(cases):
        files |= pair(f"{stem}.png", xml=xml, seed=100 * number)
        expected |= {f"Annotations/{stem}.xml": row, f"JPEGImages/{stem}.png": image}
    return files, expected


def transposed(kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(make_image(1), kind, exif=exif)


def png_header(width: int, height: int) -> bytes:
    """Return a PNG that declares this size and holds almost no pixels."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"\0" * 100)]
    parts = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def several(kind: str) -> bytes:
    return encoded(make_image(0), kind, save_all=True, append_images=[make_image(1), make_image(2)])


def obj(label: str, *boxes: str) -> str:
    """Return an object of a VOC file; a box is its four sides in one text."""
    inside = ""
    for box in boxes:
        sides = zip(("xmin", "ymin", "xmax", "ymax"), box.split(), strict=True)
        inside += "<bndbox>" + "".join(f"<{side}>{value}</{side}>" for side, value in sides) + "</bndbox>"
    return f"<object><name>{label}</name>{inside}</object>"


def xml_of(inside: str, root: str = "annotation", size: str = "40 30") -> bytes:
    width, height = size.split()
    return f"<{root}><size><width>{width}</width><height>{height}</height></size>{inside}</{root}>".encode()


def table(*rows: tuple[str, ...], encoding: str = "utf-8") -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(encoding)


JPEG, PNG = encoded(make_image(0, 64, 64), "JPEG"), encoded(make_image(2, 64, 64))
GREY16 = Image.fromarray(np.full((20, 20), 514, dtype=np.uint16))
_CRACK = voc_xml(["裂纹"]).decode()
_BOMB = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "cc"><!ENTITY d "&b;&b;">]><annotation>&d;</annotation>'
_EXTERNAL = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>'


def alpha(kind: str) -> bytes:
    if kind == "LA":
        return encoded(Image.new("LA", (20, 20), (200, 0)))
    image = Image.new("P", (20, 20), 0)
    image.putpalette([255, 0, 0, 0, 0, 255])
    return encoded(image, "PNG", transparency=0)


def declared(encoding: str, written: str) -> bytes:
    return f'<?xml version="1.0" encoding="{encoding}"?>{_CRACK}'.encode(written)


def yolo(**labels: bytes) -> Files:
    files: Files = {"data.yaml": b"names: {0: crack, 2: oil}\n"}
    for number, (name, text) in enumerate(labels.items()):
        files |= {f"images/{name}.png": encoded(make_image(number)), f"labels/{name}.txt": text}
    return files


def coco() -> Files:
    """Return a COCO JSON with gaps in its ids, an unused category, dangling ids, and an image listed twice."""
    listed = [{"id": n, "file_name": f"{n}.png"} for n in (1, 2, 3, 4)] + [{"id": 4, "file_name": "4.png"}]
    notes = [{"image_id": image, "category_id": category} for image, category in ((1, 7), (2, 90), (3, 55), (999, 7))]
    categories = [{"id": 7, "name": "oil"}, {"id": 90, "name": "crack"}, {"id": 30, "name": "never"}]
    content = {"images": listed, "annotations": notes, "categories": categories}
    return {"set.json": json.dumps(content).encode()} | {f"{n}.png": encoded(make_image(n)) for n in (1, 2, 3, 4)}


CASES: dict[str, Callable[[], tuple]] = {
    "EXIF orientation": lambda: images(
        ("a.jpg", transposed(), (*fixed("exif"), 30, 40)), ("bb.png", transposed("PNG"), fixed("exif"))
    ),
    "CMYK": lambda: images(("a.jpg", encoded(make_image(0).convert("CMYK"), "JPEG"), fixed("cmyk"))),
    "16-bit grey and floats": lambda: images(
        ("a.png", encoded(GREY16), fixed("gray16")),
        ("bb.tif", encoded(make_image(0).convert("F"), "TIFF"), bad("bad_mode")),
        ("ccc.tif", encoded(make_image(0).convert("I"), "TIFF"), bad("bad_mode")),
    ),
    "transparency": lambda: images(("a.png", alpha("P"), fixed("alpha")), ("bb.png", alpha("LA"), fixed("alpha"))),
    "truncated images": lambda: images(
        ("a.jpg", JPEG[: len(JPEG) // 2], bad("truncated")), ("bb.png", PNG[: len(PNG) // 2], bad("truncated"))
    ),
    "no image content": lambda: images(
        ("a.jpg", b"", bad("empty")),
        ("bb.jpg", b"<!doctype html><title>404</title>", bad("not_an_image")),
        ("ccc.jpg", gzip.compress(JPEG), bad("not_an_image")),
    ),
    "wrong suffix": lambda: images(("a.jpg", PNG, OK)),
    "unusual suffixes": lambda: images(
        ("a.JPG", JPEG, OK), ("bb.JPEG", encoded(make_image(5), "JPEG"), OK),
        ("ccc.Bmp", encoded(make_image(6), "BMP"), OK), ("dddd.jfif", encoded(make_image(7), "JPEG"), OK),
    ),
    "other scripts": lambda: images(("变电站 一/表 盘.JPG", JPEG, OK)),
    "huge images": lambda: images(
        ("a.png", png_header(30_000, 30_000), bad("too_large")),
        ("bb.png", png_header(9_500, 9_500), bad("too_large")),
    ),
    "several frames": lambda: images(
        ("a.jpg", several("MPO"), fixed("mpo")), ("bb.gif", several("GIF"), bad("multi_frame")),
        ("ccc.tif", several("TIFF"), bad("multi_frame")), ("dddd.png", several("PNG"), bad("multi_frame")),
    ),
    "broken colour profile": lambda: images(("a.png", encoded(make_image(0), "PNG", icc_profile=b"\0" * 128), OK)),
    "duplicates": lambda: (
        pair("a.png", PNG) | pair("bb.png", PNG) | pair("ccc.png", JPEG) | pair("dddd.png", JPEG, voc_xml(["oil"])),
        {"JPEGImages/a.png": OK, "JPEGImages/bb.png": bad("duplicate"),
         "JPEGImages/ccc.png": bad("duplicate_conflict"), "JPEGImages/dddd.png": bad("duplicate_conflict")},
    ),
    "system files": lambda: (
        dict.fromkeys(("JPEGImages/Thumbs.db", ".DS_Store", "JPEGImages/._x.jpg", "notes.json"), b"x"),
        {"JPEGImages/Thumbs.db": ("ignored", "hidden"), ".DS_Store": ("ignored", "hidden"),
         "JPEGImages/._x.jpg": ("ignored", "hidden"), "notes.json": ("ignored", "other")},
    ),
    "image sizes": lambda: images(
        ("a.png", encoded(make_image(0, 300, 17)), OK), ("bb.png", encoded(make_image(0, 300, 15)), bad("too_small"))
    ),
    "encodings": lambda: xmls(
        ("gbk", declared("GBK", "gbk"), fixed("encoding"), (*OK, ["裂纹"])),
        ("gb2312", declared("gb2312", "gbk"), fixed("encoding"), (*OK, ["裂纹"])),
        ("gb18030", declared("GB18030", "gb18030"), fixed("encoding"), (*OK, ["裂纹"])),
        ("false", declared("utf-8", "gbk"), fixed("encoding"), (*OK, ["裂纹"])),
        ("none", _CRACK.encode("gbk"), fixed("encoding"), (*OK, ["裂纹"])),
        ("bom", _CRACK.encode("utf-8-sig"), NOTE, (*OK, ["裂纹"])),
        ("wide", declared("utf-16", "utf-16"), NOTE, (*OK, ["裂纹"])),
    ),
    "XML entities": lambda: xmls(
        ("bomb", _BOMB, bad("unsafe_xml"), bad("bad_annotation")),
        ("external", _EXTERNAL, bad("unsafe_xml"), bad("bad_annotation")),
    ),
    "truncated XML": lambda: xmls(
        ("empty", b"", bad("bad_xml"), bad("bad_annotation")),
        ("cut", voc_xml(["crack"])[:-30], bad("bad_xml"), bad("bad_annotation")),
    ),
    "unusual objects": lambda: xmls(
        ("none", xml_of(""), NOTE, NEGATIVE),
        ("one", xml_of(obj("oil", "1 1 5 5")), NOTE, (*OK, ["oil"])),
        ("root", xml_of(obj("oil", "1 1 5 5"), root="doc"), NOTE, (*OK, ["oil"])),
        ("bare", xml_of(obj("oil")), NOTE, (*OK, ["oil"])),
        ("many", xml_of(obj("oil", "1 1 5 5", "2 2 6 6")), NOTE, (*OK, ["oil"])),
    ),
    "fractional boxes": lambda: xmls(("float", xml_of(obj("oil", "1.5 1.0 5.25 9e0")), NOTE, (*OK, ["oil"]))),
    "invalid boxes": lambda: xmls(
        *((name, xml_of(obj("oil", box)), fixed("odd_box"), (*OK, ["oil"]))
          for name, box in {"negative": "-3 1 5 5", "outside": "1 1 41 5", "inverted": "9 1 5 5",
                            "flat": "5 1 5 9"}.items())
    ),
    "wrong declared size": lambda: xmls(
        ("zero", xml_of(obj("oil", "1 1 5 5"), size="0 0"), NOTE, (*OK, 40, 30)),
        ("false", xml_of(obj("oil", "1 1 5 5"), size="30 20"), NOTE, (*OK, 40, 30)),
    ),
    "repeated objects": lambda: xmls(("twice", xml_of(obj("oil") + obj("oil")), NOTE, (*OK, ["oil"]))),
    "repeated rows": lambda: (
        {"labels.csv": table(("image", "labels"), ("a.png", "oil"), ("a.png", "oil"), ("b.png", "oil"),
                             ("b.png", "crack"), ("c.png", "oil;crack;oil")),
         "a.png": PNG, "b.png": JPEG, "c.png": encoded(make_image(3))},
        {"labels.csv": ("ok", "metadata"), "a.png": (*fixed("repeated"), ["oil"]), "b.png": bad("ambiguous_pair"),
         "c.png": (*OK, ["crack", "oil"])},
    ),
    "unknown labels": lambda: xmls(
        ("blank", xml_of(obj(" oil ")), NOTE, (*OK, ["oil"])),
        ("alias", xml_of(obj("oill")), NOTE, (*OK, ["oil"])),
        ("case", xml_of(obj("Oil")), NOTE, bad("unknown_label")),
        ("typo", xml_of(obj("crak") + obj("oil")), NOTE, bad("unknown_label")),
    ),
    "unpaired files": lambda: (
        pair("a.jpg", JPEG) | pair("a.png", PNG) | pair("ok.png")
        | {"JPEGImages/alone.png": encoded(make_image(4)), "Annotations/alone2.xml": voc_xml(["oil"])},
        {"JPEGImages/a.jpg": bad("ambiguous_pair"), "JPEGImages/a.png": bad("ambiguous_pair"),
         "Annotations/a.xml": bad("annotation_unused"), "JPEGImages/ok.png": OK,
         "JPEGImages/alone.png": (*bad("no_annotation"), None), "Annotations/alone2.xml": bad("no_image")},
    ),
    "YOLO": lambda: (
        yolo(box=b"0 .5 .5 .2 .2\n\n2 .5 .5 .1 .1\n", polygon=b"2 .1 .1 .2 .1 .2 .2\n", empty=b"",
             beyond=b"0 .5 .5 .2 .2\n3 .5 .5 .2 .2\n")
        | {"images/none.png": encoded(make_image(9))},
        {"images/box.png": (*OK, ["crack", "oil"]), "images/polygon.png": (*OK, ["oil"]), "images/empty.png": NEGATIVE,
         "labels/beyond.txt": bad("bad_text"), "images/beyond.png": bad("bad_annotation"),
         "images/none.png": (*bad("no_annotation"), None)},
    ),
    "COCO": lambda: (
        coco(),
        {"1.png": (*OK, ["oil"]), "2.png": (*OK, ["crack"]), "3.png": bad("bad_annotation"),
         "4.png": bad("doubtful"), "set.json#image_id 999": bad("dangling")},
    ),
    "class folders": lambda: (
        {"train/oil/a.png": PNG, "train/crack/b.png": JPEG, "train/loose.png": encoded(make_image(3))},
        {"train/oil/a.png": (*OK, ["oil"]), "train/crack/b.png": (*OK, ["crack"]),
         "train/loose.png": (*bad("no_annotation"), None)},
    ),
    "CSV in GBK": lambda: (
        {"表.csv": table(("image", "labels"), ("甲.png", "裂纹;渗油"), ("乙.png", "裂纹"), encoding="gbk"),
         "甲.png": PNG, "乙.png": JPEG},
        {"甲.png": (*OK, ["渗油", "裂纹"]), "乙.png": (*OK, ["裂纹"])},
    ),
    "CSV with a BOM": lambda: (
        {"t.csv": b"\xef\xbb\xbfimage;labels\na.png;oil\n", "a.png": PNG}, {"a.png": (*OK, ["oil"])},
    ),
    "one damaged site": lambda: (
        {"a/x.png": PNG, "a/x.xml": voc_xml(["oil"]), "b/y.png": JPEG[: len(JPEG) // 2], "b/y.xml": voc_xml(["crack"])},
        {"a/x.png": (*OK, ["oil"]), "b/y.png": bad("truncated")},
    ),
}  # fmt: skip
