"""The three ways from an image of any shape to a square."""

import numpy as np
import pytest
from PIL import Image

from tasks.data.images.resizing import RESIZED, resize

BLUE = (0, 0, 255)


def halves(width, height):
    """An image whose left half is red and whose right half is green."""
    image = np.zeros((height, width, 3), np.uint8)
    image[:, : width // 2, 0] = image[:, width // 2 :, 1] = 255
    return image


def waves(width, height):
    """A smooth image without symmetry."""
    y, x = np.mgrid[:height, :width]
    return np.stack([128 + 100 * np.sin((a * x + b * y) / 9) for a, b in ((1, 0), (0.5, 2), (2, 1))], 2).astype(
        np.uint8
    )


def noise(width, height):
    return np.random.default_rng(1).integers(0, 255, (height, width, 3), dtype=np.uint8)


def test_squash_is_pillows_resize():
    image = noise(90, 40)
    expected = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC))
    assert np.array_equal(resize(image, 32), expected)
    assert np.array_equal(resize(image, 32, "squash", BLUE), expected)


@pytest.mark.parametrize(("width", "height"), [(80, 40), (40, 80)])
def test_letterbox_keeps_the_whole_image_in_its_shape(width, height):
    image = noise(width, height)
    out = resize(image, 32, "letterbox", BLUE)
    inside = np.asarray(Image.fromarray(image).resize((32 * width // 80, 32 * height // 80), Image.Resampling.BICUBIC))
    band = out if height < width else out.transpose(1, 0, 2)
    assert np.array_equal(band[8:24], inside if height < width else inside.transpose(1, 0, 2))
    assert (band[:8] == BLUE).all() and (band[24:] == BLUE).all()


@pytest.mark.parametrize(("width", "height"), [(80, 40), (40, 80)])
def test_crop_keeps_the_central_square_in_its_shape(width, height):
    image = waves(width, height)
    centre = image[:, 20:60] if height < width else image[20:60]
    expected = np.asarray(Image.fromarray(centre).resize((32, 32), Image.Resampling.BICUBIC))
    out = resize(image, 32, "crop", BLUE)
    inside = abs(out.astype(int) - expected)[3:-3, 3:-3]  # at the edges, pixels beyond the square mix in
    assert inside.max() <= 1


def test_crop_loses_the_border_that_the_others_keep():
    image = halves(120, 40)
    image[:, :10] = BLUE  # a defect at the border
    assert (resize(image, 40, "crop") == BLUE).all(axis=-1).sum() == 0
    for how in ("squash", "letterbox"):
        assert (resize(image, 40, how) == BLUE).all(axis=-1).sum() > 20


@pytest.mark.parametrize("how", RESIZED)
def test_a_square_of_the_size_stays_as_it_is(how):
    image = noise(32, 32)
    assert np.array_equal(resize(image, 32, how, BLUE), image)


@pytest.mark.parametrize("how", RESIZED)
@pytest.mark.parametrize(("width", "height"), [(3000, 16), (16, 3000), (17, 33), (64, 64)])
def test_every_shape_becomes_a_full_square(how, width, height):
    out = resize(halves(width, height), 32, how)
    assert out.shape == (32, 32, 3) and out.dtype == np.uint8
