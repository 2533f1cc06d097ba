"""The audit: its report and files, guessed formats, near-duplicates, and unexpected kinds of files."""

import base64
import os
import shlex
import struct
import time
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from flows.cli.main import app
from models.errors import UserError
from tasks.data.decoding.near_duplicates import near_pairs, perceptual_hash
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.collector import group_names
from tasks.data.ingest.label_files import read_aliases, read_classes
from tests.support.audit_checks import LOOSE, check, files_below  # noqa: F401 - check is a fixture
from tests.support.voc_trees import add, encoded, make_image, put, sound_tree, voc_xml


def _groups(pairs, count):
    rows = [{"path": str(i), "pixels": "", "group": ""} for i in range(count)]
    return group_names(rows, pairs)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=12), st.integers(0, 16), st.randoms(use_true_random=False))
def test_near_groups_are_those_of_all_pairs(codes, distance, random):
    for code in list(codes):  # bursts: a few bits away from others
        codes += [code ^ sum(1 << random.randrange(64) for _ in range(random.randrange(9))) & (2**64 - 1)]
    hashes = [f"{code & (2**64 - 1):016x}" for code in codes]
    every = [
        (i, j)
        for i in range(len(codes))
        for j in range(i + 1, len(codes))
        if (int(hashes[i], 16) ^ int(hashes[j], 16)).bit_count() <= distance
    ]
    found = near_pairs(hashes, distance)
    assert _groups(found, len(codes)) == _groups(every, len(codes))
    assert len(found) < max(1, len(codes))
    assert all(i < j for i, j in found)


def test_near_pairs_of_100000_hashes_take_seconds():
    rng = np.random.default_rng(0)
    codes = np.repeat(rng.integers(0, 2**64, 20_000, dtype=np.uint64), 5)
    for _ in range(2):
        codes ^= np.uint64(1) << rng.integers(0, 64, len(codes)).astype(np.uint64)
    began = time.monotonic()
    pairs = near_pairs([f"{code:016x}" for code in codes.tolist()], 6)
    assert time.monotonic() - began < 20
    assert len(pairs) == 80_000  # each five are at most 4 bits apart, and no two others are within 6


def test_a_burst_is_a_group_of_near_duplicates():
    x, y = np.meshgrid(np.arange(96), np.arange(64))
    scene = (
        np.stack([120 + 100 * np.sin(x / 9) * np.cos(y / 7), 2.0 * x, 3.0 * y], axis=2).clip(0, 255).astype(np.uint8)
    )
    later = np.roll(scene, 1, axis=1) // 10 * 9 + 8
    distance = [
        (int(perceptual_hash(scene), 16) ^ int(perceptual_hash(other), 16)).bit_count()
        for other in (later, np.asarray(make_image(0, 96, 64)))
    ]
    assert distance[0] <= 6 < 16 < distance[1]


def test_duplicates_across_sites_and_splits_are_listed(check, tmp_path):  # noqa: F811
    for site in ("a", "b"):
        sound_tree(tmp_path / "src" / site, images=3)
    put(tmp_path / "src/a/ImageSets/Main/train.txt", b"000\n001\n002\n")
    put(tmp_path / "src/b/ImageSets/Main/test.txt", b"000\n001\n002\n")
    code, found = check(tmp_path / "src", "--set", "ingest.site.rule=folder", "--set", "ingest.near_duplicates=0")
    assert (code, found["sites"], found["splits"]) == (0, {"a": 3}, {"train": 3})
    assert found["repeated"][0] == {
        "kind": "bytes", "paths": ["a/JPEGImages/000.png", "b/JPEGImages/000.png"], "sites": ["a", "b"],
        "splits": ["test", "train"], "labels": ["crack, oil"],
    }  # fmt: skip
    assert len(found["repeated"]) == 3


def test_too_many_bad_files_end_with_1_and_the_report_shows_it(check, tmp_path):  # noqa: F811
    root = sound_tree(tmp_path / "src", images=4)
    put(root / "JPEGImages/alone|[x].png", encoded(make_image(9)))
    out = tmp_path / "out"
    code, found = check(root, "--out", out)
    assert (code, found["bad"], found["unlabelled"]) == (1, 1, 1)
    assert "1 of 5 inputs" in found["problem"]
    text = (out / "audit.md").read_text()
    assert "alone\\|\\[x].png" in text
    assert "max_bad_share" in text
    assert "(quarantined.png)" in text
    assert Image.open(out / "quarantined.png").size[0] > 192
    assert pq.read_table(out / "manifest.parquet").num_rows == 9
    code, found = check(root, "--out", out, "--set", "ingest.max_bad_share=0.3")
    assert code == 0
    code, found = check(root, "--out", root)
    assert code == 2
    assert "holds something else" in found["error"]["what"]


def test_the_printed_command_continues_with_the_settings(check, tmp_path):  # noqa: F811
    root = sound_tree(tmp_path / "a b", images=6)
    done = CliRunner().invoke(app, ["data", "check", str(root), "--near", "--set", "ingest.image_size=32"])
    assert done.exit_code == 0, done.output
    line = next(line for line in done.stdout.splitlines() if "fedscene data ingest" in line)
    assert "ingest.source=voc" in line
    assert "ingest.near_duplicates=6" in line
    assert "a b" in line
    done = CliRunner().invoke(app, [*shlex.split(line)[1:], "--root", str(tmp_path / "data")])
    assert done.exit_code == 0, done.output


def test_formats_are_guessed(tmp_path):
    sound_tree(tmp_path / "voc", images=2)
    put(tmp_path / "flat/a.jpg", encoded(make_image(0), "JPEG"))
    put(tmp_path / "none/a.doc", b"x")
    assert [guess_format(tmp_path / name)[0] for name in ("voc", "flat", "none")] == ["voc", "images", "images"]
    for path in ("missing", "none/a.doc"):
        with pytest.raises(UserError):
            guess_format(tmp_path / path)


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("a.txt", "oil\n\n crack \n", ["oil", "crack"]),
        ("a.txt", "裂纹\n".encode("gbk"), ["裂纹"]),
        ("a.json", '["oil", "no"]', ["oil", "no"]),
        ("a.yaml", "[oil, no]", ["oil", "no"]),
        ("a.yaml", "names: {1: crack, 0: oil}", ["oil", "crack"]),
    ],
)
def test_class_files(tmp_path, name, text, labels):
    put(tmp_path / name, text if isinstance(text, bytes) else text.encode())
    assert read_classes(tmp_path / name, "--classes") == labels


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "{oill: oil, '油': oil}"), ("a.csv", "found,meant\noill,oil\n油,oil\n")]
)
def test_alias_files(tmp_path, name, text):
    put(tmp_path / name, text.encode())
    assert read_aliases(tmp_path / name, "--aliases") == {"oill": "oil", "油": "oil"}
    for wrong in ("oill: oil\noill: crack\n", "oill,oil\noill,crack\n", "a,b,c\n"):
        put(tmp_path / name, wrong.encode())
        with pytest.raises(UserError):
            read_aliases(tmp_path / name, "--aliases")
    for wrong in ("[1, 2]", "{", "{a: b}"):
        put(tmp_path / "c.yaml", wrong.encode())
        with pytest.raises(UserError):
            read_classes(tmp_path / "c.yaml", "--classes")


def _png(width: int, bits: int, rows: bytes) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", width, 20, bits, 2, 0, 0, 0)
    chunks = (head, b"IDAT" + zlib.compress(rows), b"IEND")
    parts = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _broken_crc() -> bytes:
    data = bytearray(encoded(make_image(3)))
    data[60] ^= 255
    return bytes(data)


def _rle_bmp() -> bytes:
    rows, palette = b"".join(bytes([16, i % 4, 0, 0]) for i in range(16)) + b"\0\1", bytes(range(16))
    head = struct.pack("<IiiHHIIiiII", 40, 16, 16, 1, 8, 1, len(rows), 0, 0, 4, 4)
    return b"BM" + struct.pack("<IHHI", 70 + len(rows), 0, 0, 70) + head + palette + rows


JPEG = encoded(make_image(0), "JPEG")
UNUSUAL_KINDS = {  # written without knowledge of the readers; name -> (bytes, reason)
    "svg.jpg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not_an_image"),
    "pdf.jpg": (b"%PDF-1.4\n" * 30, "not_an_image"),
    "heic.jpg": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 99, "not_an_image"),
    "dicom.jpg": (b"\0" * 128 + b"DICM" + b"\0" * 50, "not_an_image"),
    "psd.jpg": (b"8BPS\0\1" + b"\0" * 60, "not_an_image"),
    "base64.jpg": (base64.b64encode(JPEG), "not_an_image"),
    "lfs.jpg": (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n", "not_an_image"),
    "bom.jpg": (b"\xef\xbb\xbf" + JPEG, "not_an_image"),
    "icon.png": (encoded(make_image(1, 32, 32), "ICO"), "not_an_image"),
    "no width.png": (_png(0, 8, b"\0" * 20), "not_an_image"),
    "crc.png": (_broken_crc(), "truncated"),
    "thin.png": (encoded(make_image(2, 900, 1)), "too_small"),
    "film.webp": (encoded(make_image(4), "WEBP", save_all=True, append_images=[make_image(5)]), "multi_frame"),
    "lab.tif": (encoded(make_image(6).convert("LAB"), "TIFF"), "bad_mode"),
    "glass.webp": (encoded(Image.new("RGBA", (20, 20), (9, 9, 9, 40)), "WEBP"), "alpha"),
    "tail.jpg": (encoded(make_image(7), "JPEG") + b"garbage" * 99, ""),
    "progressive.jpg": (encoded(make_image(8), "JPEG", progressive=True), ""),
    "line.bmp": (encoded(make_image(9).convert("1"), "BMP"), ""),
    "rle.bmp": (_rle_bmp(), ""),
    "deep.png": (_png(20, 16, (b"\0" + bytes(range(120))) * 20), ""),
    "one frame.gif": (encoded(make_image(10), "GIF"), ""),
    f"{'l' * 251}.png": (encoded(make_image(11)), ""),
    "new\nline \u202egpj.png": (b"", "empty"),
    "[red]markup[/red].png": (encoded(make_image(13)), ""),
}


def test_unexpected_kinds_of_files_get_one_row_each(check, tmp_path):  # noqa: F811
    root = tmp_path / "src"
    for name, (data, _) in UNUSUAL_KINDS.items():
        put(root / name, data)
        put(root / "xml" / f"{name.rsplit('.', 1)[0]}.xml", voc_xml(["oil"]))
    put(root / "folder.jpg/in.png", encoded(make_image(14)))
    (root / "folder.jpg/loop").symlink_to("..")
    (root / "dangling.jpg").symlink_to("nowhere")
    (root / os.fsdecode("表.png".encode("gbk"))).write_bytes(encoded(make_image(15)))
    code, found = check(root, *LOOSE)
    rows = {row["path"]: row for row in found["files"]}
    assert {name: rows[name]["reason"] for name in UNUSUAL_KINDS} == {name: r for name, (_, r) in UNUSUAL_KINDS.items()}
    assert rows["dangling.jpg"]["reason"] == "unreadable"
    assert "\\xb1\\xed.png" in rows
    assert "folder.jpg/in.png" in rows
    assert code == 0
    assert len(rows) == len(files_below(root))
    shown = CliRunner().invoke(app, ["data", "check", str(root), *LOOSE])
    assert "\\u202e" in (tmp_path / "runs/audit/src/audit.md").read_text().replace("\\\\", "\\")
    assert "\u202e" not in shown.stdout


@pytest.mark.parametrize(
    ("xml", "labels"),
    [
        (b"<annotation><!--" + b"x" * 10_000_000 + b"--><object><name>oil</name></object></annotation>", ["oil"]),
        (b"<annotation>" + b"<a>" * 9000 + b"</a>" * 9000 + b"<object><name>oil</name></object></annotation>", ["oil"]),
        (b"<annotation><object><name><![CDATA[oil]]></name></object></annotation>", ["oil"]),
        (voc_xml(["x" * 5000]), ["x" * 5000]),
        (b"<annotation><object><name>o\0il</name></object></annotation>", None),
        (b'{"labels": ["oil"]}', None),
    ],
    ids=["comment", "deep", "cdata", "long", "nul", "json"],
)
def test_unexpected_annotations(check, tmp_path, xml, labels):  # noqa: F811
    add(tmp_path / "src", "sound", ["oil"], 0)
    put(tmp_path / "src/JPEGImages/odd.png", encoded(make_image(1)))
    put(tmp_path / "src/Annotations/odd.xml", xml)
    _, found = check(tmp_path / "src", *LOOSE)
    assert {row["path"]: row["labels"] for row in found["files"]}["JPEGImages/odd.png"] == labels
