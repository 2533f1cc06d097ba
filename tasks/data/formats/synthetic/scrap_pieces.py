"""The pieces of the set ``scrap``: one function per class, which draws one piece into a cell, seen from a crane.

===================  ==============================================================================================
class                its piece
===================  ==============================================================================================
silicon-steel-sheet  a packet of thin plates, its edges a stack of bright and dark lines; now and then a loose plate
rebar                a bundle of long ribbed rods, some of them bent
slag-block           an irregular lump, broad facets, full of pores
heavy-scrap          a thick plate with a torch-cut edge, a beam, or a ring cut from a pipe
square-block         a pressed cube with three crumpled faces and straps around it
mixed-scrap          small pieces: bits of the others, tubes, cans, springs, torn metal
===================  ==============================================================================================

Pieces of every class may be rusty, shiny, painted, dark or dusty: no colour identifies a class.
"""

from collections.abc import Callable
from math import cos, pi, sin

from tasks.data.formats.synthetic.pen import Point, mix
from tasks.data.formats.synthetic.single_canvas import BRUSHED, CRUMPLED, POROUS, RIBBED, RUST, SMOOTH, Brush
from tasks.data.formats.synthetic.sites import RGB

BLACK: RGB = (22, 21, 22)
STEEL: RGB = (158, 164, 170)
SHINE: RGB = (214, 220, 226)
BROWN: RGB = (122, 84, 60)
ORANGE: RGB = (150, 98, 62)
_PAINTS: tuple[RGB, ...] = ((62, 92, 140), (150, 52, 44), (190, 186, 176), (70, 110, 84), (186, 152, 62))


def _metal(brush: Brush, rust: float) -> RGB:
    """Sample a metal's colour: steel, rusted up to ``rust`` of the way, lighter or darker."""
    colour = mix(STEEL, brush.one_of((BROWN, ORANGE)), rust * brush.between(0.3, 1.0))
    return mix(colour, brush.one_of((BLACK, SHINE)), brush.between(0.0, 0.3))


def _shadow(brush: Brush, points: list[Point], drop: float) -> None:
    """Draw a dark copy of an outline (canvas pixels), to the lower right."""
    dx, dy = 0.5 * drop * brush.unit, drop * brush.unit
    brush.fill_pixels([(x + dx, y + dy) for x, y in points], mix(brush.look.surface, BLACK, 0.8), None)


def _slab(
    brush: Brush, outline: list[Point], height: float, top: RGB, side: RGB, material: int, layers: int = 0
) -> None:
    """Draw a prism seen from above: its outline, given clockwise, and below it the sides that face the viewer.

    Where the outline is concave, the face covers part of the sides. ``layers`` is the number of lines along each side,
    alternately light and dark.
    """
    face = brush.pixels(outline)
    _shadow(brush, face, height + 0.12)
    drop = height * brush.unit
    shades = mix(side, BLACK, 0.5), mix(side, BLACK, 0.25)
    lines = mix(side, SHINE, 0.6), mix(side, BLACK, 0.7)
    for (x, y), (next_x, next_y) in zip(face, [*face[1:], face[0]], strict=True):
        if next_x >= x:
            continue  # faces away
        sides = [(x, y), (next_x, next_y), (next_x, next_y + drop), (x, y + drop)]
        brush.fill_pixels(sides, shades[next_y > y], material)
        for layer in range(layers):
            down = drop * (layer + 0.5) / layers
            brush.thin_line([(x, y + down), (next_x, next_y + down)], lines[layer % 2])
    brush.fill_pixels(face, top, material)


def _box(half_x: float, half_y: float) -> list[Point]:
    return [(-half_x, -half_y), (half_x, -half_y), (half_x, half_y), (-half_x, half_y)]


def _ragged(brush: Brush, corners: int, low: float, high: float) -> list[Point]:
    """Return an irregular outline around the middle, with corners at a distance of ``low`` to ``high``."""
    draws = brush.rng.random((corners, 2)).tolist()
    outline = []
    for number, (far, offset) in enumerate(draws):
        angle, radius = 2 * pi * (number + 0.7 * offset) / corners, low + (high - low) * far
        outline.append((radius * cos(angle), radius * sin(angle)))
    return outline


def sheets(brush: Brush) -> None:
    """Draw a packet of silicon-steel sheets, E-shaped ones among them, or a loose sheet."""
    colour = _metal(brush, 0.3)
    bright = mix(colour, SHINE, brush.between(0.3, 0.9))
    wide = brush.between(0.28, 0.55)
    packet = brush.rng.random() < 0.75
    layers = int(brush.between(3, 7)) if packet else 0
    outline = _punched(wide) if brush.rng.random() < 0.35 else _box(1.0, wide)
    _slab(brush, outline, 0.13 * layers if packet else 0.05, bright, colour, BRUSHED, layers)
    if brush.rng.random() < 0.4:  # the uppermost sheet has slipped
        shifted = brush.at(brush.between(-0.3, 0.3), brush.between(-0.15, 0.15), 1.0, brush.between(-12, 12))
        shifted.fill(outline, mix(bright, BLACK, 0.12), BRUSHED)
    shine = brush.between(-0.8, 0.6)
    brush.bar((shine, -wide), (shine + 0.2, -wide * 0.4), 0.12, mix(bright, SHINE, 0.8), None)


def _punched(wide: float) -> list[Point]:
    """Return the E-shaped outline of a transformer core sheet: a back and three legs."""
    right = [(1.0, -1.0), (1.0, 1.0), (0.62, 1.0), (0.62, -0.35), (0.2, -0.35), (0.2, 1.0)]
    left = [(-x, y) for x, y in reversed(right)]
    return [(x, 1.5 * wide * y) for x, y in (*right, *left)]


def rods(brush: Brush) -> None:
    """Draw a bundle of ribbed rods."""
    rust = brush.between(0.2, 1.0)
    count, gap = int(brush.between(4, 8)), brush.between(0.15, 0.2)
    bend = brush.between(-0.5, 0.5) if brush.rng.random() < 0.4 else 0.0
    across = gap * count / 2
    _shadow(brush, brush.pixels(_box(1.5, across)), 0.15)
    colours = [mix(_metal(brush, rust), SHINE, 0.15) for _ in range(3)]
    edge = mix(colours[0], BLACK, 0.7)
    for number, (first, slope, last) in enumerate(brush.rng.random((count, 3)).tolist()):
        y, slant = gap * (number + 0.5) - across, 0.3 * (slope - 0.5)
        points = [(-1.6 + 0.5 * first, y - slant), (0.1, y + bend * 0.5), (1.6 - 0.5 * last, y + slant - bend)]
        if not bend:
            del points[1]
        brush.path(points, 0.19, edge, None)
        brush.path(points, 0.11, colours[number % 3], RIBBED)


def slag(brush: Brush) -> None:
    """Draw a lump of hot-pressed slag."""
    tint = brush.one_of(((64, 60, 62), (84, 72, 62), (104, 88, 74), (98, 98, 100)))
    colour = mix(tint, brush.one_of((BLACK, STEEL)), brush.between(0.0, 0.35))
    corners = int(brush.between(7, 10))
    outline = [(x, 0.85 * y) for x, y in _ragged(brush, corners, 0.72, 1.02)]
    face = brush.pixels(outline)
    _shadow(brush, face, 0.3)
    brush.fill_pixels(face, mix(colour, BLACK, 0.45), POROUS)
    x, y = brush.between(-0.2, 0.0), brush.between(-0.25, -0.1)
    brush.fill([(x + 0.72 * px, y + 0.68 * py) for px, py in outline], colour, None)
    brush.fill([(x + 0.72 * px, y + 0.68 * py) for px, py in outline[corners // 2 :]], mix(colour, STEEL, 0.3), None)


def heavy(brush: Brush) -> None:
    """Draw a thick plate, a beam or a ring."""
    kind, colour = brush.rng.random(), _metal(brush, 0.9)
    if brush.rng.random() < 0.25:
        colour = mix(brush.one_of(_PAINTS), BROWN, brush.between(0.2, 0.6))
    dark, light = mix(colour, BLACK, 0.6), mix(colour, SHINE, 0.25)
    if kind < 0.45:
        # The torch's cut: the right edge in small steps
        steps = brush.between(0.7, 1.0) + 0.16 * brush.rng.random(5)
        cut = [(float(x), -0.7 + 0.35 * number) for number, x in enumerate(steps)]
        _slab(brush, [(-1.0, -0.7), *cut, (-1.0, 0.7)], brush.between(0.22, 0.4), light, colour, RUST)
        if brush.rng.random() < 0.6:
            brush.round((-0.2, brush.between(-0.2, 0.2)), (0.24, 0.2), dark)
    elif kind < 0.85:
        _shadow(brush, brush.pixels(_box(1.5, 0.4)), 0.3)
        brush.fill(_box(1.5, 0.42), dark, RUST)
        brush.bar((-1.5, 0.0), (1.5, 0.0), 0.36, colour, None)
        brush.bar((-1.5, -0.36), (1.5, -0.36), 0.18, light, None)
        brush.bar((-1.5, 0.40), (1.5, 0.40), 0.22, mix(colour, SHINE, 0.1), None)
        end = mix(light, ORANGE, 0.3)
        brush.bar((1.5, -0.45), (1.5, 0.5), 0.14, end)
    else:
        brush.round((0.2, 0.35), (0.95, 0.85), mix(brush.look.surface, BLACK, 0.8), RUST)
        brush.round((0, 0.22), (0.95, 0.82), dark, RUST)
        brush.round((0, 0), (0.95, 0.82), light, None)
        brush.round((0, 0), (0.6, 0.5), BLACK)
        brush.round((0, 0.16), (0.5, 0.36), dark, RUST)


def bale(brush: Brush) -> None:
    """Draw a pressed square block."""
    colour = _metal(brush, 0.6)
    if brush.rng.random() < 0.4:
        colour = mix(colour, brush.one_of(_PAINTS), brush.between(0.25, 0.7))
    top, height, half = mix(colour, SHINE, 0.45), brush.between(0.75, 1.05), brush.between(0.65, 0.8)
    outline = _box(half, half * brush.between(0.85, 1.0))
    _slab(brush, outline, height, top, colour, CRUMPLED)
    corners, (_, middle_y) = brush.pixels(outline), brush.middle
    drop = height * brush.unit
    edge = mix(colour, BLACK, 0.75)
    brush.thin_line([*corners, corners[0]], edge)
    for x, y in corners:
        if y > middle_y - 0.5 * half * brush.unit:
            brush.thin_line([(x, y), (x, y + drop)], edge)
    for number in range(2):  # bits of other sheet metal pressed into the top
        x, y = (half * (1.4 * brush.rng.random(2) - 0.7)).tolist()
        bit = brush.at(x, y, 0.16, 57.0 * number)
        bit.fill(_box(1.2, 0.6), mix(top, brush.one_of((*_PAINTS, BLACK, SHINE)), 0.5), None)


def oddments(brush: Brush) -> None:
    """Draw a can, a tube, a spring or a torn piece of metal."""
    kind, colour = brush.rng.random(), _metal(brush, 0.8)
    if brush.rng.random() < 0.4:
        colour = mix(colour, brush.one_of(_PAINTS), 0.7)
    dark = mix(colour, BLACK, 0.55)
    if kind < 0.3:
        brush.bar((-1.0, 0.1), (1.0, 0.1), 0.5, dark, RUST)
        brush.bar((-1.0, 0.0), (1.0, 0.0), 0.36, mix(colour, SHINE, 0.2), SMOOTH)
        brush.round((1.0, 0.05), (0.16, 0.24), BLACK)
    elif kind < 0.5:
        brush.round((0.05, 0.2), (0.6, 0.5), dark, CRUMPLED)
        brush.round((0, 0), (0.55, 0.42), mix(colour, SHINE, 0.3), None)
    elif kind < 0.65:
        turns = [(-1.0 + 0.25 * number, 0.3 if number % 2 else -0.3) for number in range(9)]
        brush.path(turns, 0.12, dark)
        brush.path([(x, y - 0.06) for x, y in turns], 0.06, mix(colour, SHINE, 0.4))
    else:
        torn = _ragged(brush, 6, 0.4, 1.0)
        _shadow(brush, brush.pixels(torn), 0.2)
        brush.fill(torn, colour, CRUMPLED if brush.rng.random() < 0.5 else RUST)


PIECES: dict[str, Callable[[Brush], None]] = {
    "silicon-steel-sheet": sheets,
    "rebar": rods,
    "slag-block": slag,
    "heavy-scrap": heavy,
    "square-block": bale,
    "mixed-scrap": oddments,
}
