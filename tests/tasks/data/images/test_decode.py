"""The decode function on small image files made here."""

import gzip

import numpy as np
import pytest
from PIL import Image

from tasks.data.images.decode import DecodeError, Limits, decode
from tasks.data.images.resizing import resize
from tests.support.voc_trees import encoded, make_image, put


def decoded(tmp_path, data, name="a.jpg", **options):
    put(tmp_path / name, data)
    return decode(tmp_path / name, Limits(**options))


def test_exif_orientation_is_applied(tmp_path):
    # Stored 40 wide and 20 high, left half red; orientation 6 says: turn by 90 degrees clockwise, so red is on top.
    stored = np.zeros((20, 40, 3), dtype=np.uint8)
    stored[:, :20, 0] = stored[:, 20:, 2] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    result = decoded(tmp_path, encoded(Image.fromarray(stored), "PNG", exif=exif), "a.png")
    assert (result.width, result.height, result.reason, result.sides_swapped) == (20, 40, "exif", True)
    assert result.image.shape == (40, 20, 3)
    assert (result.image[:20] == [255, 0, 0]).all()
    assert (result.image[20:] == [0, 0, 255]).all()


def test_sixteen_bit_grey_keeps_its_ramp(tmp_path):
    ramp = np.tile((np.arange(256) * 257).astype(np.uint16), (16, 1))
    result = decoded(tmp_path, encoded(Image.fromarray(ramp)), "a.png")
    assert result.reason == "gray16"
    assert (result.image == np.arange(256)[None, :, None]).all()


def test_cmyk_becomes_the_right_red(tmp_path):
    result = decoded(tmp_path, encoded(Image.new("CMYK", (20, 20), (0, 255, 255, 0)), "JPEG"))
    red, green, blue = result.image.reshape(-1, 3).mean(axis=0)
    assert result.reason == "cmyk"
    assert red > 240
    assert max(green, blue) < 15


@pytest.mark.parametrize("mode", ["palette", "grey"])
def test_transparent_pixels_show_the_background(tmp_path, mode):
    if mode == "palette":
        image = Image.new("P", (20, 20), 0)
        image.putpalette([255, 0, 0, 0, 0, 255])
        data = encoded(image, "PNG", transparency=0)
    else:
        data = encoded(Image.new("LA", (20, 20), (200, 0)), "PNG")
    result = decoded(tmp_path, data, "a.png", background=(10, 200, 30))
    assert result.reason == "alpha"
    assert (result.image == [10, 200, 30]).all()


def test_opaque_alpha_is_no_repair(tmp_path):
    assert decoded(tmp_path, encoded(make_image(0).convert("RGBA")), "a.png").reason == ""


def test_an_mpo_image_is_read_with_its_first_frame(tmp_path):
    two = encoded(make_image(0), "MPO", save_all=True, append_images=[make_image(1)])
    assert decoded(tmp_path, two).reason == "mpo"


def test_content_decides_not_the_name(tmp_path):
    result = decoded(tmp_path, encoded(make_image(0)), "a.jpg")
    assert (result.reason, result.detail) == ("", "PNG content")
    assert (result.image == np.asarray(make_image(0))).all()


JPEG = encoded(make_image(0, 64, 64), "JPEG")
BAD_IMAGES = {
    "empty": b"",
    "not_an_image": b"<!doctype html><title>404</title>" * 9,
    "truncated": JPEG[: len(JPEG) // 2],
    "too_large": encoded(make_image(0, 100, 101)),
    "too_small": encoded(make_image(0, 40, 15)),
    "multi_frame": encoded(make_image(0), "GIF", save_all=True, append_images=[make_image(1), make_image(2)]),
    "bad_mode": encoded(make_image(0).convert("F"), "TIFF"),
}


@pytest.mark.parametrize("reason", BAD_IMAGES)
def test_bad_images_are_refused_with_a_reason(tmp_path, reason):
    with pytest.raises(DecodeError) as caught:
        decoded(tmp_path, BAD_IMAGES[reason], max_pixels=10_000)
    assert caught.value.reason == reason


def test_compressed_and_missing_files(tmp_path):
    with pytest.raises(DecodeError, match="not_an_image"):
        decoded(tmp_path, gzip.compress(JPEG))
    with pytest.raises(DecodeError, match="unreadable"):
        decode(tmp_path / "none.jpg")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_images_raise_nothing_but_decode_errors(tmp_path):
    rng = np.random.default_rng(0)
    outcomes = set()
    for kind in ("JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP"):
        for _ in range(60):
            data = bytearray(encoded(make_image(1), kind))
            for place in rng.integers(0, min(300, len(data)), size=3):
                data[place] = rng.integers(256)
            try:
                outcomes.add(decoded(tmp_path, bytes(data)).reason)
            except DecodeError as error:
                outcomes.add(error.reason)
    assert {"truncated", "not_an_image", ""} <= outcomes


def test_resize_ignores_the_aspect_ratio():
    half = np.zeros((10, 80, 3), dtype=np.uint8)
    half[:, 40:] = 255
    small = resize(half, 32)
    assert small.shape == (32, 32, 3)
    assert (small[:, :12] == 0).all()
    assert (small[:, 20:] == 255).all()


@pytest.mark.parametrize(("enough", "shape"), [(0, (480, 640)), (200, (240, 320)), (60, (60, 80)), (500, (480, 640))])
def test_a_large_jpeg_is_decoded_at_reduced_size(tmp_path, enough, shape):
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((640, 480))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    upright, whole = encoded(smooth, "JPEG", quality=95), np.asarray(smooth, dtype=float)
    result = decoded(tmp_path, upright, enough=enough)
    assert (result.image.shape[:2], result.width, result.height) == (shape, 640, 480)
    assert abs(resize(result.image, 32).astype(float) - resize(whole.astype(np.uint8), 32)).mean() < 2
    turned = decoded(tmp_path, encoded(smooth, "JPEG", exif=exif), enough=enough)
    assert (turned.image.shape[:2], turned.width, turned.height, turned.sides_swapped) == (shape[::-1], 480, 640, True)
    with pytest.raises(DecodeError, match="truncated"):
        decoded(tmp_path, upright[: len(upright) // 2], enough=enough)
