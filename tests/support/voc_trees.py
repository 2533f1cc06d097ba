"""Small VOC trees made for a test, sound and faulty ones."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

Box = tuple[object, object, object, object]


def make_image(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def voc_xml(
    labels: Sequence[str], box: Box | None = (1, 1, 9, 9), size: tuple[int, int] = (40, 30), encoding: str = ""
) -> bytes:
    sides = ("xmin", "ymin", "xmax", "ymax")
    inside = "".join(f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True)) if box else ""
    objects = "".join(
        f"<object><name>{label}</name>{f'<bndbox>{inside}</bndbox>' if box else ''}</object>" for label in labels
    )
    head = f'<?xml version="1.0" encoding="{encoding}"?>' if encoding else ""
    text = (
        f"{head}<annotation><filename>wrong.bmp</filename><path>C:/elsewhere/x.jpg</path>"
        f"<size><width>{size[0]}</width><height>{size[1]}</height></size>{objects}</annotation>"
    )
    return text.encode(encoding or "utf-8")


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def add(root: Path, name: str, labels: Sequence[str], seed: int, folder: str = "") -> None:
    """Write a sound pair: ``JPEGImages/NAME.png`` and ``Annotations/NAME.xml`` below ``folder``."""
    put(root / folder / "JPEGImages" / f"{name}.png", encoded(make_image(seed)))
    put(root / folder / "Annotations" / f"{name}.xml", voc_xml(labels))


def sound_tree(root: Path, images: int = 30, classes: Sequence[str] = ("crack", "oil", "rust")) -> Path:
    """Write images of which image i has label i mod C, every third one also the next label."""
    for i in range(images):
        labels = [classes[i % len(classes)]] + ([classes[(i + 1) % len(classes)]] if i % 3 == 0 else [])
        add(root, f"{i:03d}", labels, seed=i)
    return root
