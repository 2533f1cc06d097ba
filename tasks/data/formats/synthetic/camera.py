"""Turns a flat drawing into a site's photograph: perspective, light, blur and noise. Shared by all sets."""

from math import cos, pi, radians, sin

import numpy as np
from PIL import Image, ImageFilter

from tasks.data.formats.synthetic.sites import SiteLook

OVERSAMPLING = 2  # pixels of a drawing per pixel of the photograph, a side


def photograph(
    drawing: Image.Image,
    look: SiteLook,
    rng: np.random.Generator,
    size: int,
    sampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> np.ndarray:
    """Render the photograph, uint8 RGB [size, size, 3].

    Args:
        drawing: RGB, ``OVERSAMPLING * size`` pixels a side.
        look: The site's appearance; every photograph deviates a little from it.
        rng: The image's generator.
        size: Pixels a side.
        sampling: Of the perspective; ``NEAREST`` is four times as fast, and the reduction after it also smooths.
    """
    wall = tuple(round(channel * 0.3) for channel in look.surface)
    side = OVERSAMPLING * size
    seen = drawing.transform(
        (side, side),
        Image.Transform.PERSPECTIVE,
        _homography(look, rng, side),
        sampling,
        fillcolor=wall,
    ).reduce(OVERSAMPLING)
    blur = max(0.0, look.blur + 0.15 * (2 * rng.random() - 1)) * size / 64
    if blur > 0.2:
        seen = seen.filter(ImageFilter.GaussianBlur(blur))
    pixels = np.asarray(seen, dtype=np.float32) * _light(look, rng, size)
    pixels += rng.standard_normal(pixels.shape, dtype=np.float32) * np.float32(look.noise)
    return np.clip(pixels, 0, 255, out=pixels).astype(np.uint8)


def _homography(look: SiteLook, rng: np.random.Generator, side: int) -> tuple[float, ...]:
    """Return the eight coefficients with which Pillow maps a pixel of the photograph to one of the drawing."""
    jitter = 2 * rng.random(5) - 1
    yaw, pitch = look.yaw + 0.03 * jitter[0], look.pitch + 0.03 * jitter[1]
    angle = radians(look.roll + 2 * jitter[2])
    half = side / 2
    # Far enough away that the nearer corners, which perspective enlarges, stay in the image.
    zoom = 1.0 + 0.6 * (abs(yaw) + abs(pitch)) + 0.3 * abs(sin(angle))
    # In coordinates from the middle: rotate, divide by 1 + (yaw x + pitch y) / half, shift back.
    c, s = zoom * cos(angle), zoom * sin(angle)
    dx, dy = half + 0.02 * side * jitter[3], half + 0.02 * side * jitter[4]
    g, h = yaw / half, pitch / half
    a, b, d, e = c + dx * g, -s + dx * h, s + dy * g, c + dy * h
    # So far the origin is the middle; i normalises after the origin is moved to the corner.
    i = 1 - g * half - h * half
    row0 = (a, b, dx - (a + b) * half)
    row1 = (d, e, dy - (d + e) * half)
    return tuple(float(value / i) for value in (*row0, *row1, g, h))


def _light(look: SiteLook, rng: np.random.Generator, size: int) -> np.ndarray:
    """Return factors float32 [size, size, 3]: brightness, white balance, fall-off in a random direction."""
    jitter = 2 * rng.random(3) - 1
    brightness = look.brightness * (1 + 0.12 * jitter[0])
    warmth = look.warmth + 0.03 * jitter[1]
    direction = pi * jitter[2]
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    fall = look.gradient / 2**0.5  # so that no corner falls below 1 - gradient
    along_x, along_y = np.float32(fall * cos(direction)), np.float32(fall * sin(direction))
    across = 1 + along_x * axis[None, :] + along_y * axis[:, None]
    channels = np.array([1 + warmth, 1.0, 1 - warmth], dtype=np.float32) * np.float32(brightness)
    return across[:, :, None] * channels
