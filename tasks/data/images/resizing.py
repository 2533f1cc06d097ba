"""Resizes an image to the square that is stored, in one of three ways (docs/your-images.md)."""

from typing import Literal, get_args

import numpy as np

Resize = Literal["squash", "letterbox", "crop"]
#: What each way does to an image, for the metadata of an exported model.
RESIZED = {
    "squash": "resized without keeping the aspect ratio",
    "letterbox": "resized with their aspect ratio, centred on a square of the background colour",
    "crop": "resized with their aspect ratio and cropped to the central square",
}
assert set(RESIZED) == set(get_args(Resize))


def resize(
    image: np.ndarray, size: int, how: Resize = "squash", background: tuple[int, int, int] = (255, 255, 255)
) -> np.ndarray:
    """Resize an image [H, W, 3] uint8 to [size, size, 3] uint8, antialiased (bicubic).

    Args:
        image: Upright RGB.
        size: Side of the result in pixels.
        how: ``squash``: the aspect ratio is not kept, and nothing is lost: a defect at the border stays in the image.
            ``letterbox``: the whole image in its own shape, the rest of the square in the background colour.
            ``crop``: the central square in its own shape; what is beyond it is lost.
        background: RGB colour beside a letterboxed image.
    """
    from PIL import Image, ImageOps

    if image.shape[:2] == (size, size):
        return image
    opened, method = Image.fromarray(image), Image.Resampling.BICUBIC
    if how == "crop":
        return np.asarray(ImageOps.fit(opened, (size, size), method))
    if how == "squash":
        return np.asarray(opened.resize((size, size), method))
    scale = size / max(opened.size)
    width, height = (max(1, round(side * scale)) for side in opened.size)
    square = Image.new("RGB", (size, size), background)
    square.paste(opened.resize((width, height), method), ((size - width) // 2, (size - height) // 2))
    return np.asarray(square)
