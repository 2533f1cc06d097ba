"""The persons of the set ``defects``: one person may carry three labels."""

from tasks.data.formats.synthetic.pen import mix
from tasks.data.formats.synthetic.scenes_objects import BLACK, STEEL, WHITE, box
from tasks.data.formats.synthetic.single_canvas import Brush
from tasks.data.formats.synthetic.sites import RGB

_SKIN: tuple[RGB, ...] = ((224, 178, 146), (206, 156, 122), (176, 122, 90), (120, 80, 58))
_HAIR: tuple[RGB, ...] = ((34, 28, 26), (70, 48, 32), (120, 116, 112))
_HELMETS: tuple[RGB, ...] = ((226, 44, 36), (244, 204, 30), (40, 96, 206), WHITE)
_WORK: tuple[RGB, ...] = ((44, 66, 120), (74, 92, 118), (226, 106, 28))
_SHIRTS: tuple[RGB, ...] = (
    (206, 54, 64),
    (236, 234, 228),
    (60, 150, 84),
    (226, 150, 176),
    (40, 40, 44),
    (236, 206, 80),
)
_TROUSERS: tuple[RGB, ...] = ((60, 76, 104), (140, 122, 92), (58, 56, 58))
_REFLECTIVE: RGB = (226, 236, 190)


def person(cell: Brush, bare_head: bool, plain_clothes: bool, smoking: bool) -> None:
    """Draw a person down to the knees; without faults one with helmet and work clothes, sometimes with a radio."""
    skin = cell.one_of(_SKIN)
    sleeve = _clothes(cell, skin, plain_clothes)
    cell.round((0, -0.5), (0.23, 0.28), skin)
    if bare_head:
        cell.round((0, -0.68), (0.25, 0.15), cell.one_of(_HAIR))
    else:
        helmet = cell.one_of(_HELMETS)
        cell.round((0, -0.72), (0.31, 0.23), helmet)
        cell.bar((-0.38, -0.64), (0.38, -0.64), 0.09, mix(helmet, BLACK, 0.25))
    side = cell.either()
    if smoking:
        _raised_arm(cell, side, sleeve, skin)
        _cigarette(cell, side)
    elif cell.rng.random() < 0.35:
        _raised_arm(cell, side, sleeve, skin)
        box(cell, side * 0.3 - 0.07, -0.66, side * 0.3 + 0.07, -0.3, BLACK)


def _clothes(cell: Brush, skin: RGB, plain: bool) -> tuple[RGB, RGB]:
    """Draw trousers, trunk and hanging arms; return the colours of the upper and lower sleeve."""
    shirt = cell.one_of(_SHIRTS if plain else _WORK)
    legs = cell.one_of(_TROUSERS) if plain else mix(shirt, BLACK, 0.15)
    for x in (-0.18, 0.18):
        cell.bar((x, 0.4), (1.15 * x, 1.05), 0.3, legs)
    cell.bar((0, 0.5), (0, 1.05), 0.03, mix(legs, BLACK, 0.5))
    lower = skin if plain else shirt
    for x in (-1, 1):
        cell.bar((0.43 * x, -0.12), (0.52 * x, 0.18), 0.2, shirt)
        cell.bar((0.52 * x, 0.15), (0.5 * x, 0.5), 0.15, lower)
    cell.fill([(-0.24, -0.24), (0.24, -0.24), (0.5, -0.12), (0.38, 0.46), (-0.38, 0.46), (-0.5, -0.12)], shirt)
    if plain:
        cell.fill([(-0.16, -0.25), (0.16, -0.25), (0, -0.05)], skin)
        if cell.rng.random() < 0.5:
            shirt_print = cell.one_of(_SHIRTS)
            box(cell, -0.2, 0.02, 0.2, 0.26, shirt_print)
    else:
        box(cell, -0.4, 0.14, 0.4, 0.24, _REFLECTIVE)
        for x in (-0.24, 0.24):
            cell.bar((x, -0.2), (x, 0.16), 0.08, _REFLECTIVE)
        cell.bar((0, -0.2), (0, 0.44), 0.03, mix(shirt, BLACK, 0.5))
    return shirt, lower


def _raised_arm(cell: Brush, side: int, sleeve: tuple[RGB, RGB], skin: RGB) -> None:
    elbow = (side * 0.72, 0.12)
    cell.bar((side * 0.45, -0.1), elbow, 0.19, sleeve[0])
    cell.bar(elbow, (side * 0.34, -0.34), 0.15, sleeve[1])
    cell.round((side * 0.32, -0.36), (0.1, 0.1), skin)


def _cigarette(cell: Brush, side: int) -> None:
    """Draw a cigarette from the mouth past the hand, glowing, and its smoke."""
    smoke = mix(WHITE, STEEL, cell.between(0.0, 0.25))
    x = 0.64
    for y, radius in ((-0.64, 0.12), (-0.82, 0.18), (-1.02, 0.24)):
        cell.round((side * x, y), (1.1 * radius, radius), smoke, None)
        x += cell.between(0.0, 0.14)
    cell.bar((side * 0.08, -0.38), (side * 0.6, -0.46), 0.11, WHITE)
    cell.round((side * 0.62, -0.46), (0.1, 0.1), (244, 96, 20))
