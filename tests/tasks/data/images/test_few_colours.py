"""Which images have few colours, as masks do: exactly, or nearly (a mask saved as JPEG)."""

import numpy as np
import pytest

from tasks.data.images.pixels import few_colours

RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (80, 80, 3), dtype=np.uint8)


def with_noise(share: float, step: int = 1) -> np.ndarray:
    """Return 80 x 80 pixels of one colour, this share of them random, all in each ``step``-th row."""
    pixels = np.full((80, 80, 3), 200, dtype=np.uint8)
    places = RNG.permutation(6400 // step)[: round(share * 6400)]
    pixels[places // 80 * step, places % 80] = NOISE[places // 80, places % 80]
    return pixels


@pytest.mark.parametrize(
    ("pixels", "found"),
    [
        (NOISE, ""),
        (with_noise(0.09), "nearly"),
        (with_noise(0.12), ""),
        (with_noise(0.09, step=4), "nearly"),
        (with_noise(0.12, step=4), ""),
        (np.arange(32, dtype=np.uint8).repeat(300).reshape(96, 100, 1).repeat(3, axis=2), "exact"),
        ((np.arange(33, dtype=np.uint8) * 7).repeat(300).reshape(99, 100, 1).repeat(3, axis=2), ""),
        (np.zeros((1, 1, 3), dtype=np.uint8), "exact"),
    ],
)
def test_few_colours(pixels, found):
    assert few_colours(pixels) == found


def test_the_quick_refusal_changes_nothing():
    """The definition, without the look at every fourth row first, for images between a mask and a photograph."""
    found = set()
    for number in range(300):
        palette = RNG.integers(0, 256, (RNG.choice([2, 31, 32, 33, 34, 200]), 3), dtype=np.uint8)
        weights = RNG.dirichlet(np.full(len(palette), RNG.choice([0.02, 0.1, 1])))
        pixels = palette[RNG.choice(len(palette), size=(RNG.integers(1, 90), RNG.integers(1, 90)), p=weights)]
        if number % 3 == 0:
            pixels = np.clip(pixels + RNG.integers(-3, 4, pixels.shape), 0, 255).astype(np.uint8)
        _, counts = np.unique((pixels >> 4).reshape(-1, 3), axis=0, return_counts=True)
        many = "nearly" if np.sort(counts)[-3:].sum() >= 0.9 * counts.sum() else ""
        wanted = "exact" if len(np.unique(pixels.reshape(-1, 3), axis=0)) <= 32 else many
        assert few_colours(pixels) == wanted
        found.add(wanted)
    assert found == {"", "nearly", "exact"}
