"""Insulators, stains, covers and other objects of the set ``defects``: whole or with the fault of a label."""

from math import cos, pi, sin

from tasks.data.formats.synthetic.pen import Point, mix
from tasks.data.formats.synthetic.scenes_objects import BLACK, CONCRETE, STEEL, WHITE, box, porcelain
from tasks.data.formats.synthetic.single_canvas import GRAVEL, LEAVES, Brush
from tasks.data.formats.synthetic.sites import RGB

_FRESH: RGB = (240, 232, 210)
_FILMS: tuple[RGB, ...] = ((236, 238, 240), (214, 50, 60), (50, 110, 210), (238, 214, 60), (40, 170, 120))
_TWIGS: tuple[RGB, ...] = ((96, 70, 44), (62, 44, 30), (142, 110, 72))


def insulator(cell: Brush, cracked: bool) -> None:
    """Draw a string of five sheds; if cracked, one or two of them are halved, with a pale fracture."""
    colour = porcelain(cell)
    dark = mix(colour, BLACK, 0.5)
    cell.bar((0, -1.1), (0, 1.1), 0.16, STEEL)
    cell.bar((0, -0.85), (0, 0.85), 0.36, dark)
    first = int(4 * cell.rng.random()) if cracked else 9
    both, side = cell.rng.random() < 0.6, cell.either()
    for number in range(5):
        y = -0.72 + 0.36 * number
        broken = number == first or (both and number == first + 1)
        left, right = (-0.62, 0.62)
        if broken:
            left, right = (-0.62, 0.0) if side > 0 else (0.0, 0.62)
        cell.fill([(left, y + 0.12), (0.4 * left, y - 0.14), (0.4 * right, y - 0.14), (right, y + 0.12)], colour)
        cell.bar((left, y + 0.11), (right, y + 0.11), 0.07, dark)
        if broken:
            cell.fill(
                [
                    (0, y - 0.18),
                    (side * 0.3, y - 0.06),
                    (side * 0.12, y + 0.04),
                    (side * 0.22, y + 0.16),
                    (0, y + 0.18),
                ],
                _FRESH,
            )


def _blotch(cell: Brush, wide: float, high: float, points: int = 11) -> list[Point]:
    """Return an irregular outline about the cell's middle."""
    outline = []
    for number in range(points):
        angle, reach = 2 * pi * number / points, cell.between(0.65, 1.05)
        outline.append((wide * reach * cos(angle), high * reach * sin(angle)))
    return outline


def oil_stain(cell: Brush) -> None:
    """Draw a black, glossy stain with coloured sheen."""
    cell.fill(_blotch(cell, 1.15, 0.72), (46, 38, 30), GRAVEL)
    cell.fill(_blotch(cell, 0.95, 0.55), (20, 17, 16))
    for colour in ((124, 84, 140), (70, 130, 130), (170, 140, 60)):
        at = (cell.between(-0.5, 0.4), cell.between(-0.3, 0.25))
        cell.round(at, (cell.between(0.12, 0.28), 0.07), colour)


def puddle(cell: Brush) -> None:
    """Draw water that mirrors the sky."""
    water = mix((150, 172, 196), WHITE, cell.between(0.0, 0.4))
    cell.fill(_blotch(cell, 1.05, 0.55), mix(water, BLACK, 0.45))
    cell.fill(_blotch(cell, 0.9, 0.45), water)
    cell.round((cell.between(-0.4, 0.2), -0.1), (0.3, 0.06), WHITE)


def covers(cell: Brush, broken: bool) -> None:
    """Draw three concrete plates over a cable trench; if broken, one has caved in with a jagged edge."""
    plate = mix(CONCRETE, WHITE, cell.between(0.0, 0.35))
    box(cell, -1.2, -0.6, 1.2, 0.66, mix(plate, BLACK, 0.6))
    middles = (-0.78, 0.0, 0.78)
    for x in middles:
        box(cell, x - 0.34, -0.54, x + 0.34, 0.56, plate, GRAVEL)
        box(cell, x - 0.1, 0.3, x + 0.1, 0.4, mix(plate, BLACK, 0.6))
    if broken:
        x, side = middles[int(3 * cell.rng.random())], cell.either()
        hole = [(-0.34, -0.54), (0.34, -0.54), (0.3, -0.1), (0.08, -0.22), (-0.02, 0.3), (-0.2, 0.1), (-0.34, 0.44)]
        outline = [(x + side * px, py) for px, py in hole]
        cell.fill(outline, (12, 12, 14))
        cell.path(outline[2:], 0.07, _FRESH)
        cell.at(x + 0.1 * side, -0.26, 0.24, cell.between(20, 70)).fill(
            [(-1, -0.6), (0.9, -0.8), (0.3, 0.8)], plate, GRAVEL
        )


def hanging(cell: Brush) -> None:
    """Draw a conductor in which plastic film or a kite is caught."""
    _wire(cell)
    colour = cell.one_of(_FILMS)
    if cell.rng.random() < 0.6:
        sway = cell.between(-0.3, 0.3)
        left = [(-0.5, -0.6), (-0.62 + sway, -0.2), (-0.35 + sway, 0.15), (-0.55 + 2 * sway, 0.55)]
        right = [(0.1 + 2 * sway, 1.0), (0.2 + sway, 0.5), (0.55 + sway, 0.1), (0.35 + sway, -0.25), (0.45, -0.62)]
        cell.fill([*left, *right], colour)
        cell.path([(0, -0.6), (sway, 0.0), (-0.1 + 2 * sway, 0.75)], 0.06, mix(colour, BLACK, 0.35))
    else:
        x = cell.between(-0.25, 0.25)
        kite = [(x, -0.68), (x + 0.6, -0.1), (x, 0.5), (x - 0.6, -0.1)]
        cell.fill(kite, colour)
        cell.fill([kite[0], kite[1], (x, -0.1)], cell.one_of(_FILMS))
        cell.path([(x, 0.5), (x + 0.2, 0.65), (x - 0.1, 0.8), (x + 0.15, 1.05)], 0.08, mix(colour, BLACK, 0.3))


def _wire(cell: Brush) -> None:
    for y in (-0.64, -0.42):
        cell.bar((-1.5, y - 0.08), (1.5, y + 0.06), 0.06, BLACK)


def marker(cell: Brush) -> None:
    """Draw a conductor with a warning sphere, which is no defect."""
    _wire(cell)
    colour = cell.one_of(((240, 110, 20), (220, 40, 36), WHITE))
    cell.round((0, -0.5), (0.38, 0.38), colour)
    cell.bar((-0.38, -0.5), (0.38, -0.5), 0.1, mix(colour, BLACK, 0.4))


def cross_arm(cell: Brush, nest: bool) -> None:
    """Draw a steel cross-arm of a gantry, with a bird's nest on it or without."""
    steel = mix(STEEL, BLACK, cell.between(0.1, 0.45))
    for x in (-1.0, -0.4, 0.2):
        cell.path([(x, 0.9), (x + 0.4, 0.35), (x + 0.8, 0.9)], 0.09, steel)
    for y in (0.35, 0.9):
        cell.bar((-1.2, y), (1.2, y), 0.13, mix(steel, WHITE, 0.15))
    if nest:
        _nest(cell.at(cell.between(-0.3, 0.3), 0.05, cell.between(0.85, 1.05)))


def _nest(cell: Brush) -> None:
    cell.round((0, 0), (0.72, 0.38), _TWIGS[0], LEAVES)
    for _ in range(11):
        x, y = cell.between(-0.6, 0.6), cell.between(-0.25, 0.3)
        dx, dy = cell.between(0.25, 0.5), cell.between(-0.22, 0.22)
        cell.bar((x - dx, y - dy), (x + dx, y + dy), 0.06, cell.one_of(_TWIGS), LEAVES)
    cell.round((0, -0.16), (0.42, 0.12), (30, 22, 16))
