"""Faulty metadata does not affect intact pixels, and no exception of a decoder ends a run."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from models.errors import UserError
from tasks.data.decoding.parallel import Decoding
from tasks.data.images.decode import DecodeError, Limits, decode_bytes
from tasks.data.ingest.reading import collect, open_source
from tasks.data.ingest.settings import IngestSettings
from tests.fuzz.images import plain, png_chunk, with_exif
from tests.support.tiff_files import tag, tiff_with
from tests.support.voc_trees import encoded, make_image, put

LIMITS = Limits(min_side=1)
TALL = (17, 24, 3)  # the image of fuzz.images, stored on its side


def exif(*tags, order="<", blob=b""):
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return head + struct.pack(f"{order}H", len(tags)) + b"".join(tags) + bytes(4) + blob


def turned(number, *more, order="<", blob=b""):
    return exif(tag(order, 0x0112, 3, 1, struct.pack(f"{order}H", number) + b"\0\0"), *more, order=order, blob=blob)


def rows_of(root):
    settings = IngestSettings.model_validate({"source": "folder", "path": root})
    rows = collect(open_source(settings), settings, 0, Decoding(32, settings.limits), workers=1).rows
    return {row["path"]: row for row in rows}


SOFTWARE = {
    "rational": tag("<", 0x0131, 5, 1, struct.pack("<I", 38)),
    "float": tag("<", 0x0131, 11, 1, struct.pack("<f", 2.5)),
    "short": tag("<", 0x010F, 3, 2, struct.pack("<HH", 1, 2)),
    "no such type": tag("<", 0x0131, 99, 2**31, b"abcd"),
    "beyond the end": tag("<", 0x0131, 2, 2**32 - 1, struct.pack("<I", 2**32 - 1)),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "MPO"])
@pytest.mark.parametrize("wrong", SOFTWARE)
def test_tags_of_a_wrong_type_do_not_matter(kind, wrong):
    block = turned(6, SOFTWARE[wrong], blob=struct.pack("<II", 3, 2))
    found = decode_bytes(with_exif(kind, block), "", LIMITS)
    upright = decode_bytes(plain(kind), "", LIMITS).image
    assert (found.image == upright.transpose(1, 0, 2)[:, ::-1]).all()
    assert (found.width, found.height, found.sides_swapped) == (17, 24, True)
    assert "exif" in f"{found.reason} {found.detail}"


def test_a_tiff_has_the_size_after_transposition():
    block = Image.Exif()
    block[0x0112], block[0x0131] = 6, "a program"
    found = decode_bytes(encoded(make_image(1, 40, 30), "TIFF", exif=block), ".tif", LIMITS)
    assert (found.image == np.asarray(make_image(1, 40, 30)).transpose(1, 0, 2)[:, ::-1]).all()
    assert (found.width, found.height, found.sides_swapped, found.reason) == (30, 40, True, "exif")


def damaged_chunk(kind, body):
    return png_chunk(kind, body)[:-1] + b"\0"


def with_chunk(chunk):
    data = plain("PNG")
    return data[:33] + chunk + data[33:]


HEAVY = zlib.compress(bytes(4_000_000))
DAMAGED = {
    "PNG, a text too long to unpack": with_chunk(png_chunk(b"zTXt", b"Comment\0\0" + HEAVY)),
    "PNG, a text of no known packing": with_chunk(png_chunk(b"zTXt", b"Comment\0\x07abc")),
    "PNG, a remark whose checksum is wrong": with_chunk(damaged_chunk(b"tEXt", b"Comment\0abc")),
    "PNG, a remark longer than the file": with_chunk(b"\0\1\0\0tEXtComment\0abc"),
    "PNG, EXIF as no hexadecimal text": with_chunk(png_chunk(b"tEXt", b"Raw profile type exif\0\nexif\n 9\nxyz")),
    "PNG, physical size cut": with_chunk(png_chunk(b"pHYs", b"\0")),
    "MPO, the index is cut": plain("MPO").replace(b"MPF\0", b"MPF\1", 1),
    "MPO, an index without number": plain("MPO").replace(b"\x01\xb0\x04\x00", b"\x09\xb0\x04\x00", 1),
    "WEBP, random EXIF": with_exif("WEBP", bytes(range(200))),
    "TIFF, a profile of floats": tiff_with(tag("<", 34675, 11, 1, struct.pack("<f", 1.5))),
    "TIFF, EXIF beyond the end": tiff_with(tag("<", 0x8769, 4, 1, b"\xff\xff\xff\xff")),
    "TIFF, XMP as numbers": tiff_with(tag("<", 700, 3, 1, b"\1\0\0\0")),
    "TIFF, resolution as text": tiff_with(tag("<", 282, 2, 4, b"abc\0")),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_metadata_is_ignored(name):
    found = decode_bytes(DAMAGED[name], "", LIMITS)
    assert (found.image == decode_bytes(plain(name.split(",")[0]), "", LIMITS).image).all()
    assert found.reason in ("", "mpo", "bad_metadata")


def test_ignored_metadata_is_counted_and_the_orientation_kept():
    turned_too = with_chunk(png_chunk(b"eXIf", turned(3)) + png_chunk(b"zTXt", b"Comment\0\0" + HEAVY))
    found = decode_bytes(turned_too, "", LIMITS)
    assert (found.reason, found.detail) == ("bad_metadata", "also exif")
    assert (found.image == decode_bytes(plain("PNG"), "", LIMITS).image[::-1, ::-1]).all()


def test_damaged_pixels_are_refused():
    data = with_chunk(png_chunk(b"zTXt", b"Comment\0\0" + HEAVY))
    for bad in (data[:-40], data.replace(b"IDAT", b"IDAU")):
        with pytest.raises(DecodeError, match=r"truncated|not_an_image"):
            decode_bytes(bad, "", LIMITS)


@pytest.mark.parametrize("fault", [AttributeError, RuntimeError, KeyError, AssertionError, zlib.error])
@pytest.mark.parametrize("where", ["open", "load", "getexif"])
def test_decoder_exceptions_never_end_a_run(tmp_path, monkeypatch, fault, where):
    put(tmp_path / "a/1.png", encoded(make_image(1)))
    put(tmp_path / "b/2.png", encoded(make_image(2)))

    def fail(*_, **__):
        raise fault("of the decoder")

    owner = Image if where == "open" else Image.Image
    monkeypatch.setattr(owner, where, fail)
    if where == "load":
        from PIL import ImageFile

        monkeypatch.setattr(ImageFile.ImageFile, where, fail)
    rows = rows_of(tmp_path)
    expected = {"open": "not_an_image", "load": "truncated", "getexif": "bad_metadata"}[where]
    assert {row["reason"] for row in rows.values()} == {expected}
    assert where != "load" or "of the decoder" in rows["a/1.png"]["detail"]


def test_out_of_memory_is_an_error_of_the_run(tmp_path, monkeypatch):
    put(tmp_path / "a/1.png", encoded(make_image(1)))

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(UserError, match=r"out of memory(.|\n)*1\.png(.|\n)*--workers 1"):
        rows_of(tmp_path)
