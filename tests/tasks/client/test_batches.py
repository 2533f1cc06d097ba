"""Batches, flips and shifts of the local loop."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tasks.client.augmentation import augment
from tasks.client.batches import batches
from tasks.core.network import to_float
from tasks.core.train_settings import TrainSettings


@pytest.mark.parametrize(("count", "size"), [(10, 4), (9, 4), (5, 4), (8, 4), (3, 4), (4, 4), (1, 4), (7, 2)])
def test_batches_contain_every_image_once_and_no_batch_has_a_single_image(count, size):
    parts = list(batches(count, size, np.random.default_rng(0)))
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    sizes = [len(part) for part in parts]
    assert all(s == size for s in sizes[:-1]) and sizes[-1] <= size + 1
    assert count == 1 or 1 not in sizes
    again = list(batches(count, size, np.random.default_rng(0)))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_batches_change_from_epoch_to_epoch():
    rng = np.random.default_rng(0)
    first, second = (np.concatenate(list(batches(40, 8, rng))).tolist() for _ in range(2))
    assert first != second and first != sorted(first)


def test_pixels_become_zero_to_one():
    x = to_float(np.array([[[[0, 255], [51, 102]]]], dtype=np.uint8), "cpu")
    assert x.dtype == torch.float32
    assert x.flatten().tolist() == pytest.approx([0.0, 1.0, 0.2, 0.4])


def test_augment_flips_and_shifts_each_image_independently():
    images = torch.rand(64, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    settings = TrainSettings(flip=True, shift=2)
    first, again, other = (augment(images, settings, torch.Generator().manual_seed(s)) for s in (2, 2, 3))
    assert torch.equal(first, again) and not torch.equal(first, other)
    found = set()
    for image, out in zip(images, first, strict=True):
        for flipped in (False, True):
            wide = np.pad((image.flip(-1) if flipped else image).numpy(), ((0, 0), (2, 2), (2, 2)), mode="edge")
            for top in range(5):
                for left in range(5):
                    if np.array_equal(wide[:, top : top + 6, left : left + 6], out.numpy()):
                        found.add((flipped, top, left))
                        break
    assert len(found) > 25 and {f for f, _, _ in found} == {False, True}
    assert {t for _, t, _ in found} == {left for _, _, left in found} == set(range(5))


def test_augment_off_changes_nothing_and_draws_nothing():
    images, generator = torch.rand(4, 3, 8, 8), torch.Generator().manual_seed(1)
    before = generator.get_state()
    assert torch.equal(augment(images, TrainSettings(), generator), images)
    assert torch.equal(generator.get_state(), before)


def test_momentum_is_for_sgd_only():
    assert TrainSettings(optimizer="sgd", momentum=0.9).momentum == 0.9
    with pytest.raises(ValidationError, match=r"momentum is .* it is for optimizer sgd, and optimizer is"):
        TrainSettings(optimizer="adam", momentum=0.9)
