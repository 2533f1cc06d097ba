"""Generated images with a learnable content, as PNG files with a table beside them."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

SITE = "client-{:02d}"


def patterns(classes: int, side: int, rng: np.random.Generator) -> np.ndarray:
    """Return a smooth coloured pattern for each class, float [classes, side, side, 3] in -1..1."""
    coarse = rng.uniform(-1, 1, (classes, 4, 4, 3))
    steps = np.linspace(0, 3, side)
    low = np.minimum(steps.astype(int), 2)
    share = (steps - low)[:, None]
    rows = coarse[:, low] * (1 - share)[None, :, :, None] + coarse[:, low + 1] * share[None, :, :, None]
    columns = share[None, None]
    return np.asarray(rows[:, :, low] * (1 - columns) + rows[:, :, low + 1] * columns)


def draw(labels: np.ndarray, looks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an image with the given labels, uint8 [side, side, 3]: the mean of their patterns, with noise."""
    chosen = looks[labels.astype(bool)]
    mean = chosen.mean(axis=0) if len(chosen) else np.zeros(looks.shape[1:])
    return (128 + 90 * mean + rng.normal(0, 25, mean.shape)).clip(0, 255).astype(np.uint8)


def write_images(
    folder: Path, sizes: Sequence[int], side: int, classes: int, test: int, several_labels: bool, seed: int = 0
) -> None:
    """Write images and ``table.csv`` (image, labels, split, site) into a new folder.

    Args:
        folder: Where; nothing is written if it exists.
        sizes: Training images of each client, which is a site.
        side: Side of the images, pixels.
        classes: Number of labels.
        test: Number of test images, of the first client's site.
        several_labels: Whether an image has up to three labels, instead of one.
        seed: Of all draws.
    """
    if folder.exists():
        return
    rng = np.random.default_rng(seed)
    looks = patterns(classes, side, rng)
    working = folder.with_name(f"{folder.name}.{os.getpid()}")
    working.mkdir(parents=True)
    parts = [(k, "train") for k, size in enumerate(sizes) for _ in range(size)] + [(0, "test")] * test
    with (working / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "labels", "split", "site"])
        for number, (client, split) in enumerate(parts):
            labels = np.zeros(classes, dtype=np.uint8)
            labels[number % classes] = 1  # each label occurs
            if several_labels:
                labels[rng.choice(classes, rng.integers(0, 3), replace=False)] = 1
            name = f"{number:06d}.png"
            Image.fromarray(draw(labels, looks, rng)).save(working / name, compress_level=1)
            names = ";".join(f"label {k:02d}" for k in np.flatnonzero(labels))
            table.writerow([name, names, split, SITE.format(client)])
    working.rename(folder)
