"""A canvas with materials: every shape is drawn twice, as a colour and as the number of its surface texture.

Textures are multiplied in at the end, all at once, so that a rough surface costs no more than a flat one. They are
computed once per canvas size from a fixed seed; each image uses a random window of them.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import cos, radians, sin

import numpy as np
from PIL import Image, ImageDraw

from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic.pen import Pen, Point
from tasks.data.formats.synthetic.sites import RGB, SiteLook

# Materials, the numbers in a canvas's texture layer
SMOOTH, GRAVEL, RUST, CRUMPLED, POROUS, RIBBED, LEAVES, BRUSHED = range(8)
_TEXTURE_SIZE = 1.5  # of the textures, in canvas sides


@dataclass(frozen=True)
class Brush:
    """Draws shapes with a material on a cell that may be rotated.

    Attributes:
        pen: Position and size of the cell, the canvas of colours, the image's generator, the site's appearance.
        texture: The canvas of material numbers.
        cosine: Of the cell's rotation, clockwise.
        sine: Of the cell's rotation.
    """

    pen: Pen
    texture: ImageDraw.ImageDraw
    cosine: float = 1.0
    sine: float = 0.0

    @property
    def unit(self) -> float:
        """Canvas pixels of length 1."""
        return self.pen.unit

    @property
    def middle(self) -> Point:
        """The middle of the cell in canvas pixels."""
        return self.pen.x, self.pen.y

    @property
    def rng(self) -> np.random.Generator:
        """The image's generator."""
        return self.pen.rng

    @property
    def look(self) -> SiteLook:
        """The site's appearance."""
        return self.pen.look

    def between(self, low: float, high: float) -> float:
        """Sample a uniform number."""
        return self.pen.between(low, high)

    def either(self) -> int:
        """Sample -1 or 1."""
        return self.pen.either()

    def one_of(self, colours: tuple[RGB, ...]) -> RGB:
        """Sample one of some colours."""
        return self.pen.one_of(colours)

    def at(self, x: float, y: float, scale: float, angle: float = 0.0) -> "Brush":
        """Return a brush for a cell in this one: its middle, its scale and its rotation in degrees clockwise."""
        ((px, py),) = self.pixels([(x, y)])
        c, s = cos(radians(angle)), sin(radians(angle))
        return Brush(
            replace(self.pen, x=px, y=py, unit=self.unit * scale),
            self.texture,
            self.cosine * c - self.sine * s,
            self.sine * c + self.cosine * s,
        )

    def pixels(self, points: list[Point]) -> list[Point]:
        """Convert points of the cell to canvas pixels."""
        c, s = self.cosine * self.unit, self.sine * self.unit
        return [(self.pen.x + c * x - s * y, self.pen.y + s * x + c * y) for x, y in points]

    def fill(self, points: list[Point], colour: RGB, material: int | None = SMOOTH) -> None:
        """Draw a filled polygon; without a material, that of the surface below is kept, as for a shadow."""
        self.fill_pixels(self.pixels(points), colour, material)

    def fill_pixels(self, points: list[Point], colour: RGB, material: int | None = SMOOTH) -> None:
        """Draw a filled polygon as ``fill``, with points in canvas pixels."""
        self.pen.draw.polygon(points, fill=colour)
        if material is not None:
            self.texture.polygon(points, fill=material)

    def bar(self, start: Point, end: Point, width: float, colour: RGB, material: int | None = SMOOTH) -> None:
        """Draw a straight line, at least one canvas pixel wide."""
        self.path([start, end], width, colour, material)

    def path(self, points: list[Point], width: float, colour: RGB, material: int | None = SMOOTH) -> None:
        """Draw a line through several points, at least one canvas pixel wide."""
        pixels, thick = self.pixels(points), max(1, round(width * self.unit))
        self.pen.draw.line(pixels, fill=colour, width=thick)
        if material is not None:
            self.texture.line(pixels, fill=material, width=thick)

    def round(self, at: Point, radius: Point, colour: RGB, material: int | None = SMOOTH) -> None:
        """Draw a filled ellipse; its axes are not rotated with the cell."""
        ((x, y),) = self.pixels([at])
        a, b = radius[0] * self.unit, radius[1] * self.unit
        self.pen.draw.ellipse((x - a, y - b, x + a, y + b), fill=colour)
        if material is not None:
            self.texture.ellipse((x - a, y - b, x + a, y + b), fill=material)

    def thin_line(self, points: list[Point], colour: RGB) -> None:
        """Draw a line one canvas pixel wide through points in canvas pixels, which keeps the material below."""
        self.pen.draw.line(points, fill=colour)


class Canvas:
    """A square canvas of colours and materials.

    Args:
        side: Canvas pixels a side.
        ground: Colour of the empty canvas.
        material: Of the empty canvas.
        rng: The image's generator.
        look: The site's appearance.

    Attributes:
        brush: Draws on the whole canvas: -1 to 1 from its middle.
    """

    def __init__(self, side: int, ground: RGB, material: int, rng: np.random.Generator, look: SiteLook) -> None:
        self._side, self._rng = side, rng
        self._colour, self._texture = Image.new("RGB", (side, side), ground), Image.new("L", (side, side), material)
        draw, texture = ImageDraw.Draw(self._colour), ImageDraw.Draw(self._texture)
        self.brush = Brush(Pen(draw, side / 2, side / 2, side / 2, rng, look), texture)

    def drawing(self) -> Image.Image:
        """Return the image with its textures, RGB."""
        bank = textures(self._side)
        total, side = bank.shape[1], self._side
        y, x = (int(shift) for shift in self._rng.integers(0, total - side + 1, 2))
        # The index of each pixel's factor in the flattened bank; far faster than np.choose
        rows = np.arange(y * total + x, (y + side) * total + x, total)
        places = np.asarray(self._texture) * np.intp(total * total) + rows[:, None] + np.arange(side)
        pixels = np.asarray(self._colour) * bank.reshape(-1).take(places)[:, :, None]
        return Image.fromarray(np.minimum(pixels, 255, out=pixels).astype(np.uint8))


@lru_cache(maxsize=4)
def textures(side: int) -> np.ndarray:
    """Return brightness factors of all materials, float32 [8, 1.5 side, 1.5 side], above 0.

    Grains scale with the canvas, so that a larger image shows the same surface.
    """
    total = round(_TEXTURE_SIZE * side)
    rng = numpy_generator(0, "rendered/texture")

    def noise(across: int, down: int | None = None) -> np.ndarray:
        cells = rng.standard_normal((down or across, across), dtype=np.float32)
        return np.asarray(Image.fromarray(cells).resize((total, total), Image.Resampling.BICUBIC))

    fine, middle, coarse, other = noise(128), noise(56), noise(20), noise(40)
    y, x = np.mgrid[:total, :total].astype(np.float32) * (192 / total)
    ribs = np.sin(1.35 * x + 0.45 * y)
    pits = np.clip(3 * (middle - 0.55), 0, 1)
    factors = (
        1 + 0.02 * fine,
        1 + 0.15 * fine + 0.08 * coarse,
        1 + 0.10 * middle + 0.10 * fine + 0.08 * coarse,
        1.2 - 0.40 * np.abs(other) + 0.09 * middle + 0.04 * fine,
        1.05 + 0.12 * other + 0.10 * fine - 0.6 * pits,
        1 + 0.28 * ribs + 0.10 * middle,
        1 + 0.25 * middle + 0.22 * fine + 0.12 * coarse,
        1 + 0.03 * fine + 0.07 * noise(12, 96),
    )
    return np.clip(np.stack(factors), 0.15, 1.8)
