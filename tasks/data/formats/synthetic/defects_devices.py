"""Dials, breathers, cabinets and link straps of the set ``defects``: whole or with the fault of a label."""

from tasks.data.formats.synthetic.pen import Point, mix, towards
from tasks.data.formats.synthetic.scenes_objects import BLACK, STEEL, WHITE, box, equipment_colour
from tasks.data.formats.synthetic.single_canvas import BRUSHED, Brush
from tasks.data.formats.synthetic.sites import RGB

GREEN: RGB = (30, 160, 60)
RED: RGB = (220, 30, 30)
YELLOW: RGB = (240, 196, 30)
_RIMS: tuple[RGB, ...] = ((150, 154, 158), (178, 142, 72), (64, 76, 92), (160, 44, 38), (206, 208, 206))
_FOG: RGB = (172, 180, 184)
_FRESH: RGB = (238, 232, 214)  # fracture surface
_DRY_GEL: tuple[RGB, ...] = ((30, 62, 176), (238, 128, 20))
_WET_GEL: tuple[RGB, ...] = ((236, 150, 178), (236, 206, 206), (150, 176, 140))
_OIL: RGB = (206, 132, 24)


def _arc(low: float, high: float, radius: float) -> list[Point]:
    return [towards(low + (high - low) * step / 6, radius) for step in range(7)]


def dial(cell: Brush, fault: str | None) -> None:
    """Draw a pointer instrument; its pointer stands in the green sector, unless the reading is the fault.

    Args:
        cell: The cell to draw into.
        fault: ``bj_bpmh`` (fogged), ``bj_bpps`` (glass broken), ``bj_wkps`` (housing broken), ``bjdsyc`` (pointer in
            the red sector) or None.
    """
    rim = cell.one_of(_RIMS)
    veil = cell.between(0.75, 0.95) if fault == "bj_bpmh" else 0.0
    face = mix(WHITE, _FOG, veil)
    cell.bar((0, 0.8), (0, 1.15), 0.3, mix(rim, BLACK, 0.4))
    cell.round((0, 0), (0.98, 0.98), mix(rim, BLACK, 0.5))
    cell.round((0, 0), (0.93, 0.93), rim)
    cell.round((0, 0), (0.76, 0.76), face)
    cell.path(_arc(-125, 40, 0.58), 0.17, mix(GREEN, _FOG, veil))
    cell.path(_arc(50, 125, 0.58), 0.17, mix(RED, _FOG, veil))
    angle = cell.between(66, 112) if fault == "bjdsyc" else cell.between(-105, 15)
    cell.bar(towards(angle + 180, 0.2), towards(angle, 0.68), 0.13, mix(BLACK, _FOG, veil))
    cell.round((0, 0), (0.15, 0.15), mix(BLACK, _FOG, veil))
    if fault == "bj_bpmh":
        for _ in range(3):
            at = (cell.between(-0.35, 0.35), cell.between(-0.35, 0.35))
            cell.round(at, (cell.between(0.15, 0.32), cell.between(0.12, 0.28)), mix(_FOG, WHITE, cell.between(0, 0.4)))
    elif fault == "bj_bpps":
        _broken_glass(cell)
    elif fault == "bj_wkps":
        _broken_housing(cell, rim)


def _broken_glass(cell: Brush) -> None:
    """Draw cracks from the point of impact to the rim, and a missing shard between two of them."""
    start = (cell.between(-0.25, 0.25), cell.between(-0.25, 0.25))
    rotation = cell.between(0, 360)
    ends = [towards(rotation + 52 * number + cell.between(-14, 14), 0.76) for number in range(7)]
    cell.fill([start, ends[0], towards(rotation + 26, 0.76), ends[1]], BLACK)
    for end in ends:
        cell.bar(start, end, 0.06, (40, 44, 50))


def _broken_housing(cell: Brush, rim: RGB) -> None:
    """Draw a rim from which a piece with bright edges is broken off and hangs beside it."""
    middle, half = cell.between(-150, 150), cell.between(30, 42)
    outer = [towards(middle + share * half, 1.02) for share in (-1, -0.5, 0, 0.5, 1)]
    inner = [
        towards(middle + share * half, deep) for share, deep in ((0.8, 0.5), (0.3, 0.72), (-0.2, 0.38), (-0.7, 0.62))
    ]
    cell.fill([*outer, *inner], BLACK)
    cell.path([outer[-1], *inner, outer[0]], 0.07, _FRESH)
    x, y = towards(middle, 1.12)
    cell.at(x, y, 0.28, cell.between(0, 180)).fill([(-1, -0.4), (0.9, -0.6), (1, 0.3), (-0.6, 0.6)], rim)


def breather(cell: Brush, faults: frozenset[str]) -> None:
    """Draw a breather: a glass canister of silica gel above a cup of oil with a minimum and a maximum mark.

    Args:
        cell: The cell to draw into.
        faults: Any of ``hxq_gjbs`` (gel discoloured), ``hxq_gjtps`` (canister broken), ``ywzt_yfyc`` (oil level).
    """
    gel, metal = cell.one_of(_DRY_GEL), mix(equipment_colour(cell), STEEL, 0.5)
    box(cell, -0.1, -1.15, 0.1, -0.9, mix(metal, BLACK, 0.3))
    box(cell, -0.52, -0.66, 0.52, 0.24, gel)
    if "hxq_gjbs" in faults:
        wet, share = cell.one_of(_WET_GEL), cell.between(0.55, 1.0)
        top, foot = (-0.66, -0.66 + 0.9 * share) if cell.rng.random() < 0.5 else (0.24 - 0.9 * share, 0.24)
        box(cell, -0.52, top, 0.52, foot, wet)
    for x in (-0.48, 0.3):
        box(cell, x, -0.66, x + 0.09, 0.24, mix(gel, WHITE, 0.6))
    _oil_cup(cell, "ywzt_yfyc" in faults)
    for y in (-0.78, 0.3):
        box(cell, -0.64, y - 0.13, 0.64, y + 0.05, metal, BRUSHED)
    if "hxq_gjtps" in faults:
        _broken_canister(cell, gel)


def _oil_cup(cell: Brush, wrong: bool) -> None:
    box(cell, -0.5, 0.3, 0.5, 1.02, (226, 234, 232))
    low, high = (0.58, 0.66)
    if wrong:  # nearly empty, or full
        low, high = (0.94, 0.99) if cell.rng.random() < 0.6 else (0.34, 0.38)
    top = cell.between(low, high)
    box(cell, -0.5, top, 0.5, 1.02, _OIL)
    for y in (0.52, 0.8):
        box(cell, 0.2, y - 0.025, 0.5, y + 0.025, RED)
    cell.bar((-0.5, 1.02), (0.5, 1.02), 0.08, BLACK)


def _broken_canister(cell: Brush, gel: RGB) -> None:
    """Draw a hole in the glass with bright edges, cracks from it, and gel that has run out."""
    side, y = cell.either(), cell.between(-0.35, -0.05)
    hole = [(0.6, y - 0.36), (0.05, y - 0.24), (0.2, y), (-0.2, y + 0.12), (0.15, y + 0.18), (0.6, y + 0.38)]
    edge = [(side * px, py) for px, py in hole]
    cell.fill(edge, BLACK)
    cell.path(edge, 0.07, _FRESH)
    cell.bar(edge[1], (side * -0.3, y - 0.3), 0.06, _FRESH)
    cell.bar(edge[3], (side * -0.5, y + 0.2), 0.06, _FRESH)
    for _ in range(7):
        at = (side * cell.between(0.5, 0.95), cell.between(0.35, 1.0))
        cell.round(at, (0.09, 0.09), gel)


def cabinet(cell: Brush, ajar: bool) -> None:
    """Draw a control cabinet outdoors, its door closed, or open so that the dark inside shows."""
    paint, side = equipment_colour(cell), cell.either()
    dark = mix(paint, BLACK, 0.55)
    box(cell, -0.7, -0.95, 0.7, 0.95, dark)
    box(cell, -0.76, -1.0, 0.76, -0.88, mix(paint, WHITE, 0.3))
    if not ajar:
        box(cell, -0.62, -0.82, 0.62, 0.85, paint, BRUSHED)
        box(cell, side * 0.44 - 0.06, -0.2, side * 0.44 + 0.06, 0.12, BLACK)
        cell.fill([(0, -0.62), (0.22, -0.25), (-0.22, -0.25)], YELLOW)
        for y in (0.45, 0.58, 0.71):
            cell.bar((-0.35, y), (0.35, y), 0.06, dark)
        return
    box(cell, -0.62, -0.82, 0.62, 0.85, (30, 30, 34))
    for y in (-0.5, -0.05, 0.4):
        box(cell, -0.42, y, 0.42, y + 0.14, cell.one_of(((190, 180, 150), (70, 110, 180), STEEL)))
    cell.bar((0.1, -0.4), (-0.15, 0.7), 0.06, cell.one_of((RED, YELLOW, (60, 120, 200))))
    # The door is hinged on one side and open towards the camera; it may hide a part of the inside.
    free, drop = side * cell.between(-0.1, 1.25), 0.16
    door = [(side * 0.66, -0.85), (free, -0.85 - drop), (free, 0.9 + drop), (side * 0.66, 0.9)]
    cell.fill(door, mix(paint, WHITE, 0.2), BRUSHED)
    cell.path([*door, door[0]], 0.05, dark)


def straps(cell: Brush, closed: bool) -> None:
    """Draw two link straps of a switch cabinet; closed, one or both stand upright and bridge their studs."""
    box(cell, -1.0, -1.0, 1.0, 1.0, mix(cell.look.surface, BLACK, 0.5))
    box(cell, -0.95, -0.95, 0.95, 0.95, mix(cell.look.surface, WHITE, cell.between(0.45, 0.75)))
    first = int(2 * cell.rng.random())
    colour = cell.one_of((RED, YELLOW))
    for number, x in enumerate((-0.5, 0.5)):
        upright = closed and (number == first or cell.rng.random() < 0.7)
        angle = cell.between(-4, 4) if upright else cell.either() * cell.between(132, 172)
        pivot, upper = (x, 0.0), (x, -0.66)
        cell.round(upper, (0.22, 0.22), BLACK)
        cell.round(upper, (0.12, 0.12), STEEL)
        end = towards(angle, 0.72, pivot)
        cell.bar(pivot, end, 0.42, BLACK)
        cell.bar(pivot, end, 0.3, colour)
        cell.round(pivot, (0.2, 0.2), BLACK)
