"""The synthetic data set ``scenes``: five substation scenes, single-label.

The classes are those of a published study of substation scenes with dynamic aggregation weights; the images are
synthetic. A scene is defined by its objects and their arrangement, not by a colour: sky, hall, gravel, gantries,
insulators, cabinets and people occur in several scenes. The functions below and ``scenes_parts`` arrange the scenes,
``scenes_objects`` draws the objects. Many images also show an object of another scene.

Groups of sites: 1, 4, 7, ..: all scenes; 2, 5, 8, ..: outdoor stations and lines; 3, 6, 9, ..: urban stations,
switchgear rooms and gas-insulated switchgear.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image

from tasks.data.formats.synthetic import scenes_objects as objects
from tasks.data.formats.synthetic.pen import mix
from tasks.data.formats.synthetic.scenes_objects import CONCRETE, STEEL, WHITE, box
from tasks.data.formats.synthetic.scenes_parts import behind, cabinets, conductors, indoors, outdoors, people, row
from tasks.data.formats.synthetic.single_canvas import GRAVEL, LEAVES, RUST, SMOOTH, Brush, Canvas
from tasks.data.formats.synthetic.single_label import SingleLabelSet
from tasks.data.formats.synthetic.sites import SiteLook

_HEADS = ("breaker", "transformer", "arrester", "bare", "disconnector")
_INTRUDES = 0.5  # chance, twice, of another scene's object in front
_MAX_ZOOM = 2.2  # of the camera on a part of the scene


def paint(name: str, look: SiteLook, rng: np.random.Generator, side: int) -> Image.Image:
    """Draw a scene.

    Args:
        name: Its class.
        look: The site's appearance.
        rng: The image's generator.
        side: Canvas pixels a side.

    Returns:
        RGB, ``side`` pixels a side.
    """
    canvas = Canvas(side, look.surface, SMOOTH, rng, look)
    zoom = 1 + (_MAX_ZOOM - 1) * float(rng.random())
    # Half of the shift that the edge allows; upwards rather than downwards, as objects are below the middle
    aside, up = rng.random(2).tolist()
    x, y = (zoom - 1) * (aside - 0.5), (zoom - 1) * (0.2 - 0.8 * up)
    inside = _SCENES[name](canvas.brush.at(x, y, zoom))
    for _ in range(2):
        if rng.random() < _INTRUDES:
            _intruder(canvas.brush, name, inside)
    return canvas.drawing()


def _open_type(brush: Brush) -> bool:
    """Draw rows of apparatus on posts below busbars, a gantry behind."""
    horizon = brush.between(-0.1, 0.25)
    outdoors(brush, horizon, GRAVEL if brush.rng.random() < 0.75 else LEAVES)
    behind(brush, horizon)
    rows = 2 if brush.rng.random() < 0.6 else 1
    for number in range(rows):
        near = (number + 1) / rows
        kind = _HEADS[int(brush.rng.random() * len(_HEADS))]
        row(brush, horizon + 0.12 + 0.5 * near, 0.4 + 0.5 * near * brush.between(0.6, 1.0), kind)
    heights = [brush.between(-0.9, -0.3) for _ in range(3)]
    conductors(brush, [(-1, y) for y in heights], [(1, y + 0.1) for y in heights], 0.05)
    people(brush, 0.15)
    return False


def _overhead_line(brush: Brush) -> bool:
    """Draw one or two towers and their conductors over fields, or over a station's fence."""
    horizon = brush.between(0.35, 0.8)
    outdoors(brush, horizon, LEAVES if brush.rng.random() < 0.75 else GRAVEL)
    x, scale = brush.between(-0.6, 0.6), brush.between(0.75, 1.5)
    foot = horizon + brush.between(0.02, 0.25)
    far_x, far_scale = x + brush.either() * brush.between(0.4, 0.9), scale * brush.between(0.25, 0.5)
    far_foot = horizon + 0.03
    if brush.rng.random() < 0.65:
        objects.tower(brush.at(far_x, far_foot, far_scale))
    arms = [(sign * reach, y + 0.09) for y, reach in ((-0.60, 0.30), (-0.76, 0.36), (-0.92, 0.26)) for sign in (-1, 1)]
    near = [(x + scale * ax, foot + scale * ay) for ax, ay in arms]
    far = [(far_x + far_scale * ax, far_foot + far_scale * ay) for ax, ay in arms]
    out = 3 * (1 if x > far_x else -1)
    conductors(brush, near, far, 0.06)
    conductors(brush, near, [(px + out, py - 0.5 * scale) for px, py in near], 0.15)
    objects.tower(brush.at(x, foot, scale))
    if brush.rng.random() < 0.35:
        behind(brush, horizon)
        row(brush, foot + 0.05, brush.between(0.25, 0.45), "bare")
    people(brush, 0.1)
    return False


def _switchgear(brush: Brush) -> bool:
    """Draw a row of switchgear cabinets along an aisle, or seen from the front."""
    front = brush.rng.random() < 0.35
    depth = (brush.between(-0.15, 0.15), -0.1) if front else (brush.either() * brush.between(0.3, 0.6), -0.15)
    indoors(brush, 0.6 if front else 0.25, depth)
    cabinets(brush, front, depth[0], 1.0)
    if brush.rng.random() < 0.3:
        tube_y = brush.between(-0.95, -0.75)
        objects.tube(brush, (-1, tube_y), (1, tube_y + brush.between(-0.1, 0.1)), 0.12, mix(STEEL, WHITE, 0.3))
    people(brush, 0.2)
    return True


def _main_transformer(brush: Brush) -> bool:
    """Draw a transformer on its bed, sometimes between fire walls, with a gantry or posts nearby."""
    horizon = brush.between(-0.1, 0.3)
    inside = brush.rng.random() < 0.12
    if inside:
        indoors(brush, 0.7, (0.0, -0.1))
    else:
        outdoors(brush, horizon, GRAVEL)
        behind(brush, horizon)
    if brush.rng.random() < 0.45:
        wall = mix(CONCRETE, brush.look.surface, 0.4)
        for side in (-1, 1):
            inner = side * brush.between(0.72, 0.9)
            box(brush, min(inner, 1.1 * side), brush.between(-0.6, -0.3), max(inner, 1.1 * side), 0.6, wall, RUST)
    x, scale = brush.between(-0.3, 0.3), brush.between(0.35, 0.8)
    foot = horizon + brush.between(0.25, 0.5)
    objects.transformer(brush.at(x, foot, scale))
    if not inside:
        tops = [(x + scale * (at + 0.12), foot - 1.2 * scale) for at in (-0.25, 0.1, 0.45)]
        conductors(brush, tops, [(at, -1.0) for at in (-0.6, 0.0, 0.6)], 0.03)
    if brush.rng.random() < 0.35:
        row(brush, foot + brush.between(0.1, 0.3), brush.between(0.35, 0.6), "arrester")
    people(brush, 0.2)
    return inside


def _gas_insulated(brush: Brush) -> bool:
    """Draw bays of tubes and domes, in a hall or outdoors with bushings, local control cabinets nearby."""
    horizon = brush.between(-0.1, 0.2)
    inside = brush.rng.random() < 0.55
    if inside:
        indoors(brush, brush.between(0.5, 0.75), (brush.between(-0.2, 0.2), -0.15))
    else:
        outdoors(brush, horizon, GRAVEL)
        behind(brush, horizon)
        clay = objects.porcelain(brush)
        for x in (-0.6, 0.0, 0.6):
            objects.insulator(brush, (x, horizon), (x + 0.1, horizon - 0.75), 0.1, 8, clay)
    if inside and brush.rng.random() < 0.4:
        cabinets(brush, True, 0.0, 0.7)
    rows = 2 if brush.rng.random() < 0.6 else 1
    for number in range(rows):
        near = (number + 1) / rows
        scale = 0.3 + 0.4 * near * brush.between(0.5, 1.1)
        cell = brush.at(brush.between(-0.3, 0.3), horizon + 0.2 + 0.5 * near, scale, brush.between(-6, 6))
        objects.gas_bay(cell, brush.between(0.8, 1.5))
    people(brush, 0.2)
    return inside


def _intruder(brush: Brush, name: str, inside: bool) -> None:
    """Draw an object that belongs to other scenes, or outdoors a tree, large, at the image's edge."""
    x, y, scale = brush.either() * brush.between(0.6, 1.0), brush.between(0.6, 1.0), brush.between(0.6, 1.1)
    cell = brush.at(x, y, scale)
    kind = brush.rng.random()
    if kind < 0.25 and name != "switchgear":
        objects.cabinet(cell, 0.4, objects.equipment_colour(brush))
    elif kind < 0.5 and name != "gis":
        objects.gas_bay(cell.at(0, 0, 0.7), 0.8)
    elif kind < 0.75 and not inside:
        objects.tree(cell)
    elif name != "open-type":
        objects.post(cell, objects.porcelain(brush), "transformer")


# Each function draws a scene and returns whether it is inside a building
_SCENES: dict[str, Callable[[Brush], bool]] = {
    "open-type": _open_type,
    "overhead-line": _overhead_line,
    "switchgear": _switchgear,
    "main-transformer": _main_transformer,
    "gis": _gas_insulated,
}
SET = SingleLabelSet(
    name="scenes",
    prompts={
        "open-type": "open-type, air-insulated equipment of a substation",
        "overhead-line": "an overhead high-voltage transmission line",
        "switchgear": "switchgear cabinets in a substation",
        "main-transformer": "the main transformer of a substation",
        "gis": "gas-insulated switchgear, combined electrical apparatus",
    },
    shared=(0.22, 0.20, 0.20, 0.18, 0.20),
    groups=(
        (0.24, 0.22, 0.16, 0.20, 0.18),
        (0.34, 0.32, 0.06, 0.22, 0.06),
        (0.06, 0.08, 0.36, 0.14, 0.36),
    ),
    paint=paint,
)
