"""Drawing in a cell's own coordinates: x to the right, y down, both -1 to 1 from the cell's middle."""

from dataclasses import dataclass
from math import cos, radians, sin

import numpy as np
from PIL import ImageDraw

from tasks.data.formats.synthetic.sites import RGB, SiteLook

Point = tuple[float, float]


@dataclass(frozen=True)
class Pen:
    """Draws on one cell of an image.

    Attributes:
        draw: The canvas.
        x: Middle of the cell in canvas pixels.
        y: Middle of the cell in canvas pixels.
        unit: Canvas pixels of length 1, half the cell's shorter side.
        rng: The image's generator.
        look: The site's appearance.
    """

    draw: ImageDraw.ImageDraw
    x: float
    y: float
    unit: float
    rng: np.random.Generator
    look: SiteLook

    def disc(self, at: Point, radius: float, fill: RGB) -> None:
        """Draw a filled circle."""
        x, y, r = self.x + at[0] * self.unit, self.y + at[1] * self.unit, radius * self.unit
        self.draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)

    def ring(self, at: Point, radius: float, width: float, colour: RGB) -> None:
        """Draw a circle's outline, ``width`` wide inwards, at least one canvas pixel."""
        x, y, r = self.x + at[0] * self.unit, self.y + at[1] * self.unit, radius * self.unit
        self.draw.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=max(1, round(width * self.unit)))

    def box(self, at: Point, half: Point, fill: RGB, edge: RGB | None = None) -> None:
        """Draw a filled rectangle of half-sides ``half``, with a thin edge if a colour is given."""
        x, y, w, h = (self.x + at[0] * self.unit, self.y + at[1] * self.unit, half[0] * self.unit, half[1] * self.unit)
        self.draw.rectangle((x - w, y - h, x + w, y + h), fill=fill, outline=edge)

    def line(self, start: Point, end: Point, width: float, colour: RGB) -> None:
        """Draw a straight line, at least one canvas pixel wide."""
        points = [(self.x + x * self.unit, self.y + y * self.unit) for x, y in (start, end)]
        self.draw.line(points, fill=colour, width=max(1, round(width * self.unit)))

    def between(self, low: float, high: float) -> float:
        """Sample a uniform number."""
        return low + (high - low) * float(self.rng.random())

    def either(self) -> int:
        """Sample -1 or 1."""
        return 1 if self.rng.random() < 0.5 else -1

    def one_of(self, colours: tuple[RGB, ...]) -> RGB:
        """Sample one of some colours."""
        return colours[int(self.rng.random() * len(colours))]


def mix(a: RGB, b: RGB, share: float) -> RGB:
    """Return the colour ``share`` of the way from a to b."""
    return (
        round(a[0] + (b[0] - a[0]) * share),
        round(a[1] + (b[1] - a[1]) * share),
        round(a[2] + (b[2] - a[2]) * share),
    )


def towards(angle: float, length: float, start: Point = (0.0, 0.0)) -> Point:
    """Return the point ``length`` from ``start``; angle in degrees, 0 = up, clockwise."""
    return start[0] + length * sin(radians(angle)), start[1] - length * cos(radians(angle))
