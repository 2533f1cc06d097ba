"""The devices of the set ``cabinet``: one function per label, which draws the device into a cell.

===================  ==========================================================================
label                appearance
===================  ==========================================================================
red                  one large round lamp, red, lit
red-red              two red lamps on a common plate, both lit
red-green            a red and a green lamp on a common plate, both lit, red left or above
red-red-off          two red lamps on a common plate, both dark
green-green-off      two green lamps on a common plate, both dark
green-green-red      three lamps in a triangle: two green above, a red below, all lit
platen-on            a strap (pressure plate) stands upright and bridges both studs
platen-on-half       the strap leans 32 to 50 degrees to either side, the upper stud is bare
platen-off           the strap hangs 95 to 120 degrees to either side, the upper stud is bare
switch-center        rotary switch, handle within 7 degrees of straight up
switch-center-half   handle 33 to 50 degrees from straight up, to either side
switch-left          handle within 8 degrees of straight left
switch-right         handle within 8 degrees of straight right
transformer          two interlocking circles, one above the other, neither filled
transformer-on       both circles filled with a lit colour
transformer-on-half  exactly one circle, upper or lower, filled with a lit colour
===================  ==========================================================================

A lit lamp is bright with a halo and a pale core, a dark one is its lens colour in shade with a small glint.
Colours of straps, handles and lit symbols are random and independent of the label.
A horizontal flip turns switch-left into switch-right: train without flips.
"""

from collections.abc import Callable

from tasks.data.formats.synthetic.pen import Pen, Point, mix, towards
from tasks.data.formats.synthetic.sites import RGB

DARK: RGB = (34, 36, 40)
STEEL: RGB = (150, 154, 158)
WHITE: RGB = (244, 244, 240)
RED: RGB = (236, 34, 30)
GREEN: RGB = (24, 196, 70)
YELLOW: RGB = (236, 196, 30)
BLUE: RGB = (40, 90, 190)
ORANGE: RGB = (244, 130, 24)
_STRAPS = (RED, YELLOW, BLUE, ORANGE)
_HANDLES = (WHITE, RED, YELLOW, STEEL)
_LIT = (RED, GREEN, ORANGE, YELLOW)
_SIDE_BY_SIDE: tuple[Point, Point] = ((-0.5, 0.0), (0.5, 0.0))
_STACKED: tuple[Point, Point] = ((0.0, -0.5), (0.0, 0.5))


def _plate(pen: Pen, half: Point) -> RGB:
    """Draw a mounting plate, lighter or darker than the panel; return its colour."""
    shade = WHITE if pen.rng.random() < 0.6 else DARK
    colour = mix(pen.look.surface, shade, pen.between(0.25, 0.6))
    pen.box((0, 0), half, colour, mix(colour, DARK, 0.5))
    return colour


def _lamp(pen: Pen, at: Point, radius: float, colour: RGB, lit: bool) -> None:
    grey = (sum(colour) // 3,) * 3
    lens = mix(colour, grey, pen.look.fading * pen.between(0.6, 1.0))
    if lit:
        pen.disc(at, radius * 1.25, mix(pen.look.surface, lens, 0.45))
        pen.disc(at, radius, DARK)
        pen.disc(at, radius * 0.86, mix(lens, WHITE, 0.12))
        pen.disc(at, radius * 0.42, mix(lens, WHITE, pen.between(0.5, 0.8)))
    else:
        pen.disc(at, radius, DARK)
        pen.disc(at, radius * 0.86, mix(lens, DARK, pen.between(0.5, 0.68)))
        pen.disc((at[0] - radius * 0.3, at[1] - radius * 0.3), radius * 0.2, mix(lens, WHITE, 0.35))


def _pair(pen: Pen, first: RGB, second: RGB, lit: bool) -> None:
    places, half = (_SIDE_BY_SIDE, (1.0, 0.62)) if pen.rng.random() < 0.6 else (_STACKED, (0.62, 1.0))
    _plate(pen, half)
    for at, colour in zip(places, (first, second), strict=True):
        _lamp(pen, at, 0.42, colour, lit)


def _triple(pen: Pen) -> None:
    _plate(pen, (1.0, 1.0))
    for at, colour in (((-0.48, -0.44), GREEN), ((0.48, -0.44), GREEN), ((0.0, 0.46), RED)):
        _lamp(pen, at, 0.4, colour, True)


def _single(pen: Pen) -> None:
    _lamp(pen, (0, 0), pen.between(0.56, 0.72), RED, True)


def _platen(pen: Pen, low: float, high: float) -> None:
    """Draw a strap on its lower stud, ``low`` to ``high`` degrees from upright, to either side."""
    _plate(pen, (0.95, 1.0))
    pivot, upper = (0.0, 0.42), (0.0, -0.62)
    pen.disc(upper, 0.24, DARK)
    pen.disc(upper, 0.14, STEEL)
    colour = pen.one_of(_STRAPS)
    end = towards(pen.either() * pen.between(low, high), 1.04, pivot)
    pen.line(pivot, end, 0.54, DARK)
    pen.line(pivot, end, 0.4, colour)
    pen.disc(pivot, 0.28, DARK)
    pen.disc(pivot, 0.16, STEEL)


def _switch(pen: Pen, low: float, high: float, side: int) -> None:
    """Draw a rotary switch, its handle ``low`` to ``high`` degrees from straight up, clockwise where side is 1."""
    _plate(pen, (1.0, 1.0))
    for tick in (-90, 0, 90):
        pen.line(towards(tick, 0.78), towards(tick, 0.98), 0.1, DARK)
    pen.disc((0, 0), 0.66, mix(DARK, STEEL, pen.between(0.0, 0.35)))
    angle, colour = side * pen.between(low, high), pen.one_of(_HANDLES)
    pen.line(towards(angle + 180, 0.3), towards(angle, 0.86), 0.34, DARK)
    pen.line(towards(angle + 180, 0.22), towards(angle, 0.84), 0.24, colour)


def _transformer(pen: Pen, upper: bool, lower: bool) -> None:
    plate = _plate(pen, (0.72, 1.0))
    colour, ink = pen.one_of(_LIT), mix(DARK, plate, 0.1)
    pen.line((0, -1.0), (0, -0.8), 0.12, ink)
    pen.line((0, 0.8), (0, 1.0), 0.12, ink)
    for y, lit in ((-0.32, upper), (0.32, lower)):
        if lit:
            pen.disc((0, y), 0.5, mix(colour, WHITE, 0.15))
    for y in (-0.32, 0.32):
        pen.ring((0, y), 0.52, 0.14, ink)


def _transformer_half(pen: Pen) -> None:
    upper = pen.rng.random() < 0.5
    _transformer(pen, upper, not upper)


DEVICES: dict[str, Callable[[Pen], None]] = {
    "green-green-off": lambda pen: _pair(pen, GREEN, GREEN, False),
    "green-green-red": _triple,
    "platen-off": lambda pen: _platen(pen, 95, 120),
    "platen-on": lambda pen: _platen(pen, 0, 5),
    "platen-on-half": lambda pen: _platen(pen, 32, 50),
    "red": _single,
    "red-green": lambda pen: _pair(pen, RED, GREEN, True),
    "red-red": lambda pen: _pair(pen, RED, RED, True),
    "red-red-off": lambda pen: _pair(pen, RED, RED, False),
    "switch-center": lambda pen: _switch(pen, 0, 7, pen.either()),
    "switch-center-half": lambda pen: _switch(pen, 33, 50, pen.either()),
    "switch-left": lambda pen: _switch(pen, 82, 98, -1),
    "switch-right": lambda pen: _switch(pen, 82, 98, 1),
    "transformer": lambda pen: _transformer(pen, False, False),
    "transformer-on": lambda pen: _transformer(pen, True, True),
    "transformer-on-half": _transformer_half,
}


def blank(pen: Pen) -> None:
    """Draw a cover plate with a screw in each corner."""
    pen.box((0, 0), (0.9, 0.9), mix(pen.look.surface, DARK, pen.between(0.05, 0.3)), mix(pen.look.surface, DARK, 0.5))
    for x in (-0.7, 0.7):
        for y in (-0.7, 0.7):
            pen.disc((x, y), 0.1, DARK)


def strips(pen: Pen) -> None:
    """Draw engraved label strips, some of them coloured."""
    for y in (-0.45, 0.35):
        colour = pen.one_of((WHITE, WHITE, RED, YELLOW, GREEN))
        pen.box((0, y), (0.85, 0.22), colour, DARK)
        pen.line((-0.6, y), (pen.between(-0.1, 0.6), y), 0.12, DARK)


def terminals(pen: Pen) -> None:
    """Draw a row of terminals."""
    body = pen.one_of((STEEL, BLUE, (196, 190, 160), (60, 130, 80)))
    pen.box((0, 0), (1.0, 0.5), body, DARK)
    for x in (-0.75, -0.25, 0.25, 0.75):
        pen.disc((x, 0), 0.16, DARK)


def meter(pen: Pen) -> None:
    """Draw a square pointer instrument."""
    pen.box((0, 0), (0.9, 0.9), WHITE, DARK)
    pen.box((0, 0.62), (0.88, 0.26), DARK)
    pen.line((0, 0.4), towards(pen.between(-60, 60), 1.0, (0, 0.4)), 0.1, pen.one_of((DARK, RED)))


def button(pen: Pen) -> None:
    """Draw a push button, never red or green."""
    pen.box((0, 0), (0.7, 0.7), STEEL, DARK)
    pen.disc((0, 0), 0.55, DARK)
    pen.disc((0, 0), 0.45, pen.one_of((BLUE, YELLOW, WHITE, (70, 72, 76))))


CLUTTER: tuple[Callable[[Pen], None], ...] = (blank, strips, terminals, meter, button)
