"""Weak and strong views: each operation against torchvision's for one image, the draws, and what stays untouched."""

import math

import pytest
import torch
from pydantic import ValidationError
from torchvision.transforms import v2
from torchvision.transforms.v2 import InterpolationMode, functional

from tasks.client.view_operations import GEOMETRIC, OPERATIONS, apply_operation, geometric_matrices, warp
from tasks.client.views import Views, cutout, strong_view, weak_view

STRENGTHS, SIGNS = torch.tensor([0.0, 0.5, 1.0, 0.5, 1.0]), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
OFF = {"flip": False, "shift": 0.0, "operations": 0, "cutout": 0.0}


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def some_images(count=5, channels=3, size=20):
    return torch.rand(count, channels, size, size, generator=generator(7))


def theirs(name, image, strength, size):
    """Apply torchvision's operation at a share of the strength that its ``RandAugment`` has at most."""
    bilinear = {"interpolation": InterpolationMode.BILINEAR}
    shear = math.degrees(math.atan(0.3 * strength))
    still = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]} | bilinear
    pixels = int(150 / 331 * size * strength)
    corner = {"center": [0.0, 0.0]}
    return {
        "shear_x": lambda: functional.affine(image, **(still | corner | {"shear": [shear, 0.0]})),
        "shear_y": lambda: functional.affine(image, **(still | corner | {"shear": [0.0, shear]})),
        "translate_x": lambda: functional.affine(image, **(still | {"translate": [pixels, 0]})),
        "translate_y": lambda: functional.affine(image, **(still | {"translate": [0, pixels]})),
        "rotate": lambda: functional.rotate(image, 30.0 * strength, **bilinear),
        "brightness": lambda: functional.adjust_brightness(image, 1 + 0.9 * strength),
        "color": lambda: functional.adjust_saturation(image, 1 + 0.9 * strength),
        "contrast": lambda: functional.adjust_contrast(image, 1 + 0.9 * strength),
        "sharpness": lambda: functional.adjust_sharpness(image, 1 + 0.9 * strength),
        "posterize": lambda: functional.posterize(image, round(8 - 4 * abs(strength))),
        "solarize": lambda: functional.solarize(image, 1 - abs(strength)),
        "autocontrast": lambda: functional.autocontrast(image),
        "equalize": lambda: functional.equalize(image),
    }[name]()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "identity"])
def test_an_operation_on_a_batch_is_torchvisions_on_each_image(name, channels):
    images = some_images(channels=channels)
    before = images.clone()
    if name in GEOMETRIC:
        found = warp(images, geometric_matrices([name] * 5, STRENGTHS, SIGNS, 20))
    else:
        found = apply_operation(name, images, STRENGTHS, SIGNS)
    assert torch.equal(images, before)
    for image, out, strength in zip(images, found, (STRENGTHS * SIGNS).tolist(), strict=True):
        assert torch.allclose(out, theirs(name, image, strength, 20), atol=1e-5), (name, strength)


def test_the_operations_are_those_of_torchvisions_randaugment():
    names = {name.lower() for name in v2.RandAugment._AUGMENTATION_SPACE}
    assert {name.replace("_", "") for name in OPERATIONS} == names and len(OPERATIONS) == 14


@pytest.mark.parametrize("view", [weak_view, strong_view])
def test_views_keep_shape_range_order_and_the_images_themselves(view):
    images = torch.linspace(0.1, 0.9, 64)[:, None, None, None].expand(64, 3, 16, 16).clone()
    before = images.clone()
    settings = Views(choices=["identity", *GEOMETRIC], border="reflect")
    found = view(images, settings, generator())
    assert torch.equal(images, before) and found.shape == images.shape and found.min() >= 0 and found.max() <= 1
    # Each image has one grey value, so its largest one but Cutout's names it.
    values = torch.where(found == 0.5, 0.0, found).amax(dim=(1, 2, 3))
    assert torch.allclose(values, before[:, 0, 0, 0], atol=1e-5)
    bright = view(torch.rand(64, 3, 16, 16, generator=generator()), Views.model_validate({}), generator())
    assert bright.min() >= 0 and bright.max() <= 1


@pytest.mark.parametrize("view", [weak_view, strong_view])
def test_views_are_reproducible_drawn_for_each_image_and_touch_no_global_generator(view):
    images = some_images(1).expand(40, -1, -1, -1)
    state = torch.get_rng_state()
    settings = Views.model_validate({})
    first, second, other = (view(images, settings, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    assert len({out.numpy().tobytes() for out in first}) > 20  # forty draws of one image
    shared = generator(1)
    assert torch.equal(view(images, settings, shared), first) and not torch.equal(view(images, settings, shared), first)


@pytest.mark.parametrize("view", [weak_view, strong_view])
def test_switched_off_a_view_is_the_image(view):
    images = some_images()
    assert torch.equal(view(images, Views(**OFF), generator()), images)
    never = Views(**(OFF | {"operations": 3, "probability": 0.0}))
    assert torch.equal(view(images, never, generator()), images)
    still = Views(**(OFF | {"operations": 2, "choices": ["rotate", "shear_x", "translate_y"], "magnitude": 0}))
    assert torch.allclose(view(images, still, generator()), images, atol=1e-5)


def test_flips_are_of_the_images_never_of_the_batch():
    images = some_images(200)
    settings = Views(**(OFF | {"flip": True, "vertical_flip": 0.25}))
    found = weak_view(images, settings, generator())
    kinds = []
    for image, out in zip(images, found, strict=True):
        versions = [image, image.flip(-1), image.flip(-2), image.flip(-1).flip(-2)]
        kinds.append(next(number for number, version in enumerate(versions) if torch.equal(out, version)))
    shares = [sum(number == kind for number in kinds) / 200 for kind in range(4)]
    assert shares == pytest.approx([0.375, 0.375, 0.125, 0.125], abs=0.08)


@pytest.mark.parametrize("border", ["zeros", "edge", "reflect"])
def test_a_shift_is_by_whole_pixels_up_to_its_share_of_the_side(border):
    images = some_images(300, size=16)
    found = weak_view(images, Views(**(OFF | {"shift": 0.125, "border": border})), generator())
    wide = torch.nn.functional.pad(
        images, (2,) * 4, mode={"zeros": "constant", "edge": "replicate"}.get(border, border)
    )
    seen = set()
    for image, out in zip(wide, found, strict=True):
        places = [(y, x) for y in range(5) for x in range(5) if torch.equal(image[:, y : y + 16, x : x + 16], out)]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) == 25


def test_cutout_covers_a_grey_square_around_any_pixel():
    found = cutout(torch.zeros(2000, 1, 16, 16), 8, generator())
    covered = found == 0.5
    assert ((found == 0) | covered).all()
    sizes = covered.sum(dim=(1, 2, 3))
    assert sizes.max() == 64 and sizes.min() == 16  # at a corner a quarter of it is inside
    for mask in covered[:50, 0]:
        rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
        assert mask.sum() == len(rows) * len(columns) == (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    middle = covered[:, 0, 8, 8].float().mean()
    assert float(middle) == pytest.approx((8 / 16) ** 2, abs=0.04)


def test_each_operation_is_drawn_equally_often_and_only_the_chosen_ones():
    images = torch.full((600, 3, 8, 8), 0.3)
    settings = Views(**(OFF | {"operations": 1, "choices": ["identity", "solarize", "brightness"], "magnitude": 30}))
    values = strong_view(images, settings, generator())[:, 0, 4, 4]
    counts = {round(float(value), 2): int((values == value).sum()) for value in values.unique()}
    assert counts.keys() == {0.3, 0.7, 0.03, 0.57}  # unchanged, inverted, times 0.1 and times 1.9
    assert [counts[0.3], counts[0.7], counts[0.03] + counts[0.57]] == pytest.approx([200] * 3, abs=45)


@pytest.mark.parametrize("wrong", [{"choices": []}, {"shift": 0.5}, {"magnitude": 31}, {"choices": ["hue"]}])
def test_settings_that_make_no_view_are_refused(wrong):
    with pytest.raises(ValidationError):
        Views.model_validate(wrong)
