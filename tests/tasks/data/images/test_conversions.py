"""Conversions that would leave a flat image, byte orders, previews, and unsupported formats."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, features

from tasks.data.images.decode import DecodeError, Limits, decode_bytes
from tests.support.image_trees import HEIC
from tests.support.tiff_files import tag, tiff_with
from tests.support.voc_trees import encoded, make_image

LIMITS = Limits(min_side=1)
PIXELS = np.asarray(make_image(1))
RAMP = np.tile((np.arange(256) * 257).astype(np.uint16), (16, 1))


def decoded(data, suffix="", **limits):
    return decode_bytes(data, suffix, Limits(min_side=1, **limits))


def refused(data, suffix="", **limits):
    with pytest.raises(DecodeError) as caught:
        decoded(data, suffix, **limits)
    return caught.value


def with_alpha(alpha, colours=PIXELS, kind="PNG"):
    full = np.dstack([colours, np.broadcast_to(np.uint8(alpha), colours.shape[:2])])
    return encoded(Image.fromarray(full), kind)


def bmp32(alpha):
    """A BMP whose header (version 4) declares a mask for the alpha byte."""
    height, width = PIXELS.shape[:2]
    body = np.dstack([PIXELS[::-1, :, ::-1], np.full((height, width), alpha, np.uint8)]).tobytes()
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    head = (
        struct.pack("<IiiHHIIiiII", 108, width, height, 1, 32, 3, len(body), 0, 0, 0, 0) + masks + b"BGRs" + bytes(48)
    )
    return b"BM" + struct.pack("<IHHI", 14 + len(head) + len(body), 0, 0, 14 + len(head)) + head + body


@pytest.mark.parametrize("kind", ["BMP", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("alpha", [0, 1])
def test_an_alpha_channel_that_hides_the_whole_image_is_ignored(kind, alpha):
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    full = np.dstack([PIXELS, np.full(PIXELS.shape[:2], alpha, np.uint8)])
    found = decoded(bmp32(alpha) if kind == "BMP" else encoded(Image.fromarray(full), kind, **options))
    assert found.reason == "alpha_unused"
    assert (found.image == PIXELS).all()


def test_an_alpha_channel_with_few_opaque_pixels_is_ignored():
    alpha = np.zeros((1000, 40), np.uint8)
    alpha[0, 0] = 255
    colours = np.asarray(make_image(2, 40, 1000))
    found = decoded(with_alpha(alpha, colours))
    assert found.reason == "alpha_unused"
    assert (found.image == colours).all()


def test_an_alpha_channel_with_a_shape_is_applied():
    alpha = np.zeros(PIXELS.shape[:2], np.uint8)
    alpha[5:12, 5:12] = 255
    found = decoded(with_alpha(alpha))
    assert found.reason == "alpha"
    assert (found.image[0, 0] == 255).all()
    assert (found.image[6, 6] == PIXELS[6, 6]).all()
    assert decoded(with_alpha(0, np.full_like(PIXELS, 200))).reason == "alpha"  # one colour: nothing to lose


def test_white_on_transparency_is_refused_until_the_background_is_set():
    alpha = np.zeros(PIXELS.shape[:2], np.uint8)
    alpha[5:20, 5:20] = 255
    data = with_alpha(alpha, np.full_like(PIXELS, 255))
    error = refused(data)
    assert (error.reason, "ingest.background" in error.detail) == ("flat", True)
    found = decoded(data, background=(0, 0, 0))
    assert (found.reason, found.image[0, 0].max(), found.image[6, 6].min()) == ("alpha", 0, 255)


def test_a_palette_of_transparent_colours():
    image = Image.fromarray(PIXELS).quantize(4)
    found = decoded(encoded(image, "PNG", transparency=bytes(4)))
    assert found.reason == "alpha_unused"
    assert (found.image == np.asarray(image.convert("RGB"))).all()


def test_cmyk_that_would_become_black_is_refused():
    full = np.dstack([PIXELS, np.full(PIXELS.shape[:2], 255, np.uint8)])
    assert refused(encoded(Image.fromarray(full, "CMYK"), "TIFF")).reason == "flat"
    assert decoded(encoded(Image.fromarray(np.zeros_like(full), "CMYK"), "TIFF")).reason == "cmyk"


def grey(values):
    return encoded(Image.fromarray(values.astype(np.uint16)))


def test_sixteen_bit_grey_of_few_values_needs_the_setting():
    eight = decoded(grey(RAMP // 257))
    assert eight.reason == "gray16_low"
    assert (eight.image == np.arange(256)[None, :, None]).all()
    for values in (RAMP // 16, RAMP // 64, RAMP // 100 + 7000):  # 12 and 10 bits, a thermal camera's range
        error = refused(grey(values))
        assert error.reason == "flat"
        assert "ingest.gray16=bits or stretch" in error.detail
        assert f"from {values.min()} to {values.max()}" in error.detail
    assert (decoded(grey(RAMP // 16), gray16="bits").image == np.arange(256)[None, :, None]).all()
    stretched = decoded(grey(RAMP // 100 + 7000), gray16="stretch").image
    assert (stretched.min(), stretched.max()) == (0, 255)


def test_sixteen_bit_grey_is_divided_by_257():
    for values in (RAMP, RAMP // 4, np.full((20, 20), 514)):  # 16 and 14 bits, one grey
        found = decoded(grey(values))
        assert found.reason == "gray16"
        assert (found.image[..., 0] == (values.astype(int) + 128) // 257).all()


def test_sixteen_bit_colours_that_are_nearly_black_are_refused():
    width, height = 16, 16
    rows = b"".join(b"\0" + b"".join(struct.pack(">3H", x, y, 40) for x in range(width)) for y in range(height))
    import zlib

    from tests.fuzz.images import png_chunk

    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = png_chunk(b"IHDR", head), png_chunk(b"IDAT", zlib.compress(rows)), png_chunk(b"IEND", b"")
    assert refused(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).reason == "flat"


def tiff16(order, values):
    """A 16-bit grey TIFF in either byte order."""
    data = values.astype(f"{order}u2").tobytes()
    height, width = values.shape
    tags = [(256, width), (257, height), (258, 16), (259, 1), (262, 1), (273, 8), (277, 1), (278, height)]
    entries = [struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0) for tag, value in tags]
    entries.append(struct.pack(f"{order}HHII", 279, 4, 1, len(data)))
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8 + len(data))
    return head + data + struct.pack(f"{order}H", len(entries)) + b"".join(entries) + bytes(4)


def test_both_byte_orders_of_a_16_bit_tiff_are_one_image():
    little, big = decoded(tiff16("<", RAMP)), decoded(tiff16(">", RAMP))
    assert (little.reason, big.reason) == ("gray16", "gray16")
    assert (little.image == big.image).all()
    assert (big.image == np.arange(256)[None, :, None]).all()


def pages(*images, mark=None):
    buffer = io.BytesIO()
    from PIL import TiffImagePlugin

    with TiffImagePlugin.AppendingTiffWriter(buffer, True) as writer:
        for number, image in enumerate(images):
            tags = TiffImagePlugin.ImageFileDirectory_v2()
            if mark == number:
                tags[254] = 1
            image.save(writer, "TIFF", tiffinfo=tags)
            writer.newFrame()
    return buffer.getvalue()


LARGE, SMALL = make_image(1, 120, 90), make_image(1, 120, 90).resize((40, 30))


@pytest.mark.parametrize(
    ("images", "mark"),
    [((LARGE, SMALL), None), ((LARGE, SMALL), 1), ((SMALL, LARGE), 0), ((LARGE, make_image(5, 60, 60)), 1)],
)
def test_the_full_page_of_a_tiff_with_a_preview_is_read(images, mark):
    found = decoded(pages(*images, mark=mark))
    assert (found.reason, found.width, found.height) == ("preview", 120, 90)
    assert (found.image == np.asarray(LARGE)).all()


@pytest.mark.parametrize("second", [make_image(2, 120, 90), make_image(2, 40, 40), make_image(2, 90, 68)])
def test_several_full_pages_are_refused(second):
    assert refused(pages(LARGE, second)).reason == "multi_frame"


@pytest.mark.parametrize("kind", ["PPM", "JPEG2000", "AVIF"])
def test_formats_that_pillow_reads_reliably_are_read(kind):
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    options = {"AVIF": {"quality": 100, "subsampling": "4:4:4"}, "JPEG2000": {}}.get(kind, {})
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((64, 48))
    found = decoded(encoded(smooth, kind, **options))
    assert found.reason == ""
    assert np.abs(found.image.astype(int) - np.asarray(smooth)).mean() < 3
    wide = np.tile((np.arange(64) * 1040).astype(np.uint16), (48, 1))
    if kind == "PPM":
        data = b"P5\n64 48\n65535\n" + wide.astype(">u2").tobytes()
        assert (decoded(data).image[..., 0] == (wide.astype(int) + 128) // 257).all()


UNREAD = {
    "a.heic": (HEIC, "pillow-heif"),
    "a.jpg": (HEIC, "HEIC is not read"),
    "a.jxl": (b"\xff\x0a" + bytes(50), "JPEG XL"),
    "a.psd": (b"8BPS\0\1" + bytes(50), "PSD"),
    "a.svg": (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "vector graphics"),
    "a.tga": (bytes(60), "TGA is not read: convert it"),
    "a.dcm": (bytes(128) + b"DICM" + bytes(50), "DICOM"),
    "a.nef": (encoded(make_image(1), "TIFF"), "camera raw (NEF)"),
    "a.cr2": (b"II*\0\x10\0\0\0CR\2\0" + bytes(50), "camera raw (CR2)"),
    "a.arw": (bytes(60), "camera raw (ARW)"),
    "a.exr": (b"v/1\x01" + bytes(50), "EXR"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_unsupported_formats_are_named_with_advice(name, monkeypatch):
    monkeypatch.setattr("tasks.data.images.decode.has_heif", lambda: False)
    monkeypatch.setattr("tasks.data.images.image_kinds.has_heif", lambda: False)
    data, expected = UNREAD[name]
    error = refused(data, f".{name.split('.')[1]}")
    assert (error.reason, expected in error.detail) == ("not_an_image", True), error.detail
    assert " is not read: " in error.detail


def test_the_preview_of_a_camera_raw_file_is_never_read():
    data = tiff_with(tag("<", 50706, 1, 4, b"\1\4\0\0"))
    assert "camera raw" in refused(data, ".tif").detail


def test_heif_is_read_if_the_extra_is_installed():
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    data = encoded(make_image(1, 64, 64), "HEIF", quality=-1)
    assert decoded(data, ".heic").image.shape == (64, 64, 3)
