"""Augmentation: each transform against torchvision's for one image, its draws, and that nothing else changes."""

import threading

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from tasks.client.augmentation import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    augment,
    draw_crops,
    resized_crop,
    rotate,
)
from tasks.core.train_settings import AugmentSettings, TrainSettings

EVERYTHING = {
    "crop": "resized",
    "rotation": 20,
    "vertical_flip": True,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "erasing": 0.5,
}


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def some_images(count=6, channels=3, size=20):
    return torch.rand(count, channels, size, size, generator=generator(7))


def augmented(images, seed=2, **settings):
    return augment(images, TrainSettings(augment=settings), generator(seed))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_resized_crop_is_torchvisions(channels):
    images = some_images(4, channels)
    boxes = [(0, 0, 20, 20), (3, 5, 9, 12), (11, 0, 9, 20), (19, 19, 1, 1)]
    found = resized_crop(images, *(torch.tensor(part, dtype=torch.float32) for part in zip(*boxes, strict=True)))
    for image, box, out in zip(images, boxes, found, strict=True):
        assert torch.allclose(out, functional.resized_crop(image, *box, [20, 20]), atol=1e-5)


def test_drawn_crops_follow_torchvisions_distribution():
    images = torch.zeros(4000, 1, 32, 32)
    top, left, height, width = draw_crops(images, (0.2, 0.8), (0.75, 4 / 3), generator())
    assert (top >= 0).all() and (top + height <= 32).all() and (left >= 0).all() and (left + width <= 32).all()
    crop = v2.RandomResizedCrop(32, (0.2, 0.8))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = [crop.make_params([images[0]]) for _ in range(4000)]
    for ours, key in ((top, "top"), (left, "left"), (height, "height"), (width, "width")):
        other = np.array([entry[key] for entry in theirs])
        assert float(ours.mean()) == pytest.approx(other.mean(), abs=0.5)
        assert float(ours.std()) == pytest.approx(other.std(), abs=0.5)


@pytest.mark.parametrize(("ratio", "expected"), [((4.0, 5.0), [7, 0, 5, 20]), ((0.2, 0.25), [0, 7, 20, 5])])
def test_a_crop_that_never_fits_is_the_middle_as_in_torchvision(ratio, expected):
    found = [float(part[0]) for part in draw_crops(some_images(1), (1.0, 1.0), ratio, generator())]
    assert found == expected
    params = v2.RandomResizedCrop(20, (1.0, 1.0), ratio).make_params([some_images(1)])
    assert found == [params[key] for key in ("top", "left", "height", "width")]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_rotation_is_torchvisions(channels):
    images, angles = some_images(4, channels), torch.tensor([0.0, 15.0, -40.0, 90.0])
    for image, angle, out in zip(images, angles.tolist(), rotate(images, angles, "zeros"), strict=True):
        theirs = functional.rotate(image, angle, interpolation=functional.InterpolationMode.BILINEAR)
        assert torch.allclose(out, theirs, atol=1e-4)


def test_a_rotation_fills_the_corners_as_the_border_says():
    white = torch.ones(1, 1, 20, 20)
    assert rotate(white, torch.tensor([45.0]), "zeros")[0, 0, 0, 0] == 0
    for border in ("border", "reflection"):
        assert torch.allclose(rotate(white, torch.tensor([45.0]), border), white)


@pytest.mark.parametrize(
    ("ours", "theirs", "values"),
    [
        (adjust_brightness, functional.adjust_brightness, [0.0, 0.5, 1.0, 1.8]),
        (adjust_contrast, functional.adjust_contrast, [0.0, 0.5, 1.0, 1.8]),
        (adjust_saturation, functional.adjust_saturation, [0.0, 0.5, 1.0, 1.8]),
        (adjust_hue, functional.adjust_hue, [-0.5, -0.1, 0.0, 0.3]),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_colours_change_as_in_torchvision(ours, theirs, values, channels):
    images = some_images(4, channels)
    for image, value, out in zip(images, values, ours(images, torch.tensor(values)), strict=True):
        assert torch.allclose(out, theirs(image, value), atol=1e-5)


@pytest.mark.parametrize(("border", "mode"), [("zeros", "constant"), ("reflect", "reflect"), ("edge", "edge")])
def test_crop_pad_cuts_a_window_out_of_the_widened_image(border, mode):
    images = some_images(40, size=8)
    found, places = augmented(images, crop="pad", padding=2, border=border), set()
    for image, out in zip(images, found, strict=True):
        wide = np.pad(image.numpy(), ((0, 0), (2, 2), (2, 2)), mode=mode)
        places |= {
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(wide[:, top : top + 8, left : left + 8], out.numpy())
        }
    assert len(places) > 12


def test_vertical_flips_turn_about_half_of_the_images():
    images = some_images(200)
    found = augmented(images, vertical_flip=True)
    turned = sum(torch.equal(out, image.flip(-2)) for image, out in zip(images, found, strict=True))
    assert 70 < turned < 130
    assert turned == 200 - sum(torch.equal(out, image) for image, out in zip(images, found, strict=True))


def test_erasing_blackens_one_rectangle_of_the_asked_size_in_its_share_of_the_images():
    found = augmented(torch.ones(1000, 3, 32, 32), erasing=0.25, erasing_scale=[0.1, 0.2], erasing_ratio=[0.5, 2.0])
    black = found == 0
    assert torch.equal(black[:, 0], black[:, 2]) and ((found == 0) | (found == 1)).all()
    touched = black[:, 0].flatten(1).any(dim=1)
    assert 200 < int(touched.sum()) < 300
    for mask in black[touched, 0]:
        rows, columns = mask.any(dim=1), mask.any(dim=0)
        height, width = int(rows.sum()), int(columns.sum())
        assert int(mask.sum()) == height * width, "a full rectangle"
        assert 0.08 < height * width / 1024 < 0.23 and 0.4 < height / width < 2.5


def test_strength_of_colour_changes_stays_in_its_range():
    images = torch.full((500, 3, 4, 4), 0.5)
    factors = augmented(images, brightness=0.4)[:, 0, 0, 0] / 0.5
    assert factors.min() >= 0.6 - 1e-6 and factors.max() <= 1.4 + 1e-6
    assert factors.min() < 0.63 and factors.max() > 1.37


@pytest.mark.parametrize("channels", [1, 3])
def test_equal_seeds_give_equal_images_in_range_and_shape(channels):
    images = some_images(16, channels)
    first, again, other = (augmented(images, seed, **EVERYTHING) for seed in (2, 2, 3))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.shape == images.shape and first.dtype == torch.float32
    assert first.min() >= 0 and first.max() <= 1
    assert not any(torch.equal(out, image) for image, out in zip(images, first, strict=True))


def test_the_global_generator_is_neither_used_nor_moved():
    images, before = some_images(8), torch.random.get_rng_state()
    first = augmented(images, **EVERYTHING)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert torch.equal(augmented(images, **EVERYTHING), first)


def test_concurrent_threads_do_not_disturb_each_other():
    images = some_images(8)
    alone = [augmented(images, seed, **EVERYTHING) for seed in range(4)]
    found = {}

    def work(seed):
        for _ in range(5):
            found[seed] = augmented(images, seed, **EVERYTHING)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[seed], alone[seed]) for seed in range(4))


def test_all_off_changes_nothing_and_draws_nothing():
    images, source = some_images(), generator()
    before = source.get_state()
    assert torch.equal(augment(images, TrainSettings(), source), images)
    assert torch.equal(source.get_state(), before)


def test_a_weak_and_a_strong_view_come_from_the_same_function():
    images, weak = some_images(8, size=8), TrainSettings(flip=True)
    strong = weak.model_copy(update={"augment": AugmentSettings(brightness=0.5, erasing=1.0)})
    source = generator()
    views = augment(images, weak, source), augment(images, strong, source)
    for image, out in zip(images, views[0], strict=True):
        assert torch.equal(out, image) or torch.equal(out, image.flip(-1))
    assert not any(torch.equal(a, b) for a, b in zip(*views, strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augment": {"scale": [0.9, 0.1]}}, "scale must be the smaller number first"),
        ({"augment": {"erasing_ratio": [3.0, 0.3]}}, "erasing_ratio"),
        ({"shift": 2, "augment": {"crop": "pad"}}, "both move the image"),
        ({"augment": {"hue": 0.7}}, "less than or equal to 0.5"),
        ({"augment": {"padding": 8}}, "padding is 8, but it is for crop pad, and crop is none; leave it at 4"),
        ({"augment": {"crop": "pad", "scale": [0.5, 1]}}, "scale is .* for crop resized, and crop is pad"),
        ({"augment": {"crop": "resized", "border": "edge"}}, "border is edge, .* both are off"),
        ({"augment": {"erasing_ratio": [1, 1]}}, "erasing_ratio is .* but erasing is 0"),
    ],
)
def test_settings_without_sense_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        TrainSettings.model_validate(settings)
