"""Shared parts of the scenes of the set ``scenes``: surroundings, background, rows of apparatus, lines, people."""

import numpy as np

from tasks.data.formats.synthetic import scenes_objects as objects
from tasks.data.formats.synthetic.pen import Point, mix
from tasks.data.formats.synthetic.scenes_objects import BLACK, CONCRETE, WHITE, box
from tasks.data.formats.synthetic.single_canvas import LEAVES, Brush
from tasks.data.formats.synthetic.sites import RGB

_SKIES: tuple[RGB, ...] = ((120, 170, 220), (170, 196, 220), (196, 200, 204), (150, 156, 166), (224, 200, 170))


def outdoors(brush: Brush, horizon: float, material: int) -> None:
    """Draw sky with haze and clouds, hills, buildings or trees, and the ground."""
    sky = mix(brush.one_of(_SKIES), WHITE, brush.between(0.0, 0.3))
    for number in range(4):
        low = -1 + (horizon + 1) * number / 4
        box(brush, -1, low, 1, horizon, mix(sky, WHITE, 0.15 * number))
    for _ in range(int(brush.between(0, 3))):
        at = (brush.between(-1, 1), brush.between(-1, horizon - 0.3))
        brush.round(at, (brush.between(0.2, 0.5), brush.between(0.05, 0.12)), mix(sky, WHITE, 0.5))
    kind = brush.rng.random()
    if kind < 0.4:
        for _ in range(3):
            at = (brush.between(-1, 1), horizon + 0.05)
            brush.round(at, (brush.between(0.4, 0.9), brush.between(0.1, 0.3)), mix((84, 104, 92), sky, 0.4), LEAVES)
    elif kind < 0.7:
        left = brush.between(-1, 0.3)
        wall = mix(brush.look.surface, CONCRETE, 0.5)
        box(brush, left, horizon - brush.between(0.15, 0.4), left + brush.between(0.4, 0.8), horizon, wall)
    else:
        for x in np.arange(-1, 1.2, 0.4).tolist():
            objects.tree(brush.at(x, horizon + 0.03, brush.between(0.15, 0.3)))
    ground = mix(CONCRETE, BLACK, 0.3) if material != LEAVES else (104, 116, 70)
    box(brush, -1, horizon, 1, 1, mix(ground, brush.look.surface, 0.35), material)


def indoors(brush: Brush, back: float, depth: Point) -> None:
    """Draw a hall in perspective: end wall at ``depth`` of half width ``back``, side walls, ceiling, lights, floor."""
    x, y = depth
    wall = mix(brush.look.surface, WHITE, brush.between(0.3, 0.6))
    left, right, top, foot = x - back, x + back, y - 0.7 * back, y + 0.6 * back
    brush.fill([(-1, -1), (1, -1), (right, top), (left, top)], mix(wall, WHITE, 0.4))
    brush.fill([(-1, -1), (left, top), (left, foot), (-1, 1)], mix(wall, BLACK, 0.12))
    brush.fill([(1, -1), (right, top), (right, foot), (1, 1)], mix(wall, BLACK, 0.2))
    box(brush, left, top, right, foot, wall)
    floor = mix(brush.one_of(((70, 110, 90), (120, 120, 124), (146, 130, 110))), brush.look.surface, 0.3)
    brush.fill([(-1, 1), (left, foot), (right, foot), (1, 1)], floor)
    for share in (0.25, 0.75):
        lamp = left + share * (right - left)
        brush.bar((lamp, top), (-1 + 2 * share, -1), 0.05, WHITE)
    if brush.rng.random() < 0.5:
        brush.bar((left, foot), (-1.3 * back - 0.4, 1), 0.03, (220, 190, 60))


def conductors(brush: Brush, starts: list[Point], ends: list[Point], sag: float) -> None:
    """Draw lines that hang between pairs of points."""
    for (x, y), (end_x, end_y) in zip(starts, ends, strict=True):
        points = []
        for number in range(7):
            share = number / 6
            points.append((x + (end_x - x) * share, y + (end_y - y) * share + 4 * sag * share * (1 - share)))
        brush.path(points, 0.012, BLACK, None)


def people(brush: Brush, chance: float) -> None:
    """Draw up to two workers on the ground in front, each with probability ``chance``."""
    for _ in range(2):
        if brush.rng.random() < chance:
            objects.person(brush.at(brush.between(-0.9, 0.9), brush.between(0.6, 0.95), brush.between(0.3, 0.5)))


def behind(brush: Brush, horizon: float) -> None:
    """Draw the background of an outdoor scene: usually a gantry, often a transformer, a gas bay or a tower."""
    x, foot = brush.between(-0.6, 0.6), horizon + 0.1
    if brush.rng.random() < 0.55:
        objects.gantry(brush.at(0.5 * x, foot, brush.between(0.7, 1.05)), brush.between(0.5, 0.8))
    kind = brush.rng.random()
    if kind < 0.3:
        objects.transformer(brush.at(-x, foot, brush.between(0.25, 0.5)))
    elif kind < 0.6:
        objects.gas_bay(brush.at(x, foot, brush.between(0.25, 0.5)), brush.between(0.8, 1.5))
    elif kind < 0.8:
        objects.tower(brush.at(x, foot, brush.between(0.4, 0.9)))


def row(brush: Brush, y: float, scale: float, kind: str) -> None:
    """Draw the phases of one apparatus side by side, up to the image's edge."""
    clay, start, gap = objects.porcelain(brush), brush.between(-0.9, -0.5), brush.between(0.55, 0.85) * scale / 0.7
    for x in np.arange(start, 1.0, gap).tolist():
        cell = brush.at(x, y, scale)
        if kind == "disconnector":
            objects.disconnector(cell, clay)
        else:
            objects.post(cell, clay, kind)


def cabinets(brush: Brush, front: bool, depth: float, height: float) -> None:
    """Draw a row of cabinets: across the image, or along the wall opposite ``depth`` and towards it."""
    colour = objects.equipment_colour(brush)
    if front:
        wide, foot = brush.between(0.14, 0.24), brush.between(0.5, 0.75)
        for number in range(int(2 / (2 * wide)) + 1):
            x = -1 + wide * (2 * number + 0.5)
            objects.cabinet(brush.at(x, foot, 0.6 * height * brush.between(0.98, 1.02)), wide / (0.6 * height), colour)
        return
    side = -1 if depth > 0 else 1
    x, scale = depth + side * 0.22, 0.16
    places = []
    while abs(x) < 1.2:
        wide = 0.42 * scale
        places.append((x + side * wide, scale, wide))
        x, scale = x + 2 * side * wide, scale * 1.42
    for middle, scale, wide in places:
        cell = brush.at(middle, 0.0 + 1.1 * scale, scale * height)
        objects.cabinet(cell, wide / (scale * height), colour, slant=0.5 * -side)
