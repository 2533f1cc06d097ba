"""The drawn set ``defects``: photographs from substations, 17 labels of defects, breaches of rules and one state.

Synthetic, and meant to be: the labels are those of the substation defect set (``defects_labels``), the images are
drawn, the co-occurrence of labels is planted and so are the differences between sites (``sites``, ``camera``,
``defects_backdrops``). For every labelled object its sound counterpart occurs too, in images with and without the
label: a whole insulator, a person with helmet, a door that is closed. So the defect is what a label means, not the
object. What the objects look like: ``defects_devices``, ``defects_objects``, ``defects_persons``.

Image i of a site depends on (seed, set, site, i) and the settings of looks and co-occurrence alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from tasks.data.formats.synthetic import defects_devices as devices
from tasks.data.formats.synthetic import defects_objects as objects
from tasks.data.formats.synthetic.camera import OVERSAMPLING, photograph
from tasks.data.formats.synthetic.defects_backdrops import BACKDROPS, backdrop_shares
from tasks.data.formats.synthetic.defects_labels import BREATHERS, CLASSES, PEOPLE, PLANTED, PROMPT_NAMES
from tasks.data.formats.synthetic.defects_persons import person
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.single_canvas import SMOOTH, Brush, Canvas
from tasks.data.formats.synthetic.sites import SiteLook, site_counts, site_look

__all__ = [
    "CLASSES",
    "PROMPT_NAMES",
    "draw",
    "draw_labels",
    "paint",
    "prevalences",
    "site_group",
    "sites",
    "strength_matrix",
]

_HIGH, _MIDDLE, _LOW = 0.0, 1.0, 2.0  # where things are found; see _arrange
_TOGETHER = 0.5  # chance that all labels of people are carried by one person, and those of breathers by one breather
_CLUTTERED = 0.55  # chance that a place left over holds a sound object
_GRIDS = ((2, 2), (3, 2), (2, 3), (3, 3), (4, 3))  # columns, rows


@dataclass(frozen=True)
class _Thing:
    """An object to be drawn.

    Attributes:
        height: ``_HIGH``, ``_MIDDLE`` or ``_LOW``.
        width: Compared with its height; so slim things can be drawn larger.
        tilt: Turned up to this many degrees either way.
        draw: Draws it into a cell.
    """

    height: float
    width: float
    tilt: float
    draw: Callable[[Brush], None]


def _breather(faults: frozenset[str]) -> _Thing:
    return _Thing(_MIDDLE, 0.75, 6, lambda cell: devices.breather(cell, faults))


def _person(faults: frozenset[str]) -> _Thing:
    bare_head, plain_clothes, smoking = (name in faults for name in PEOPLE)
    return _Thing(_LOW, 0.7, 4, lambda cell: person(cell, bare_head, plain_clothes, smoking))


def _dial(fault: str | None) -> _Thing:
    return _Thing(_MIDDLE, 1.0, 12, lambda cell: devices.dial(cell, fault))


_FAULTY: dict[str, _Thing] = {
    **{name: _dial(name) for name in ("bj_bpmh", "bj_bpps", "bj_wkps", "bjdsyc")},
    "jyz_pl": _Thing(_HIGH, 0.8, 30, lambda cell: objects.insulator(cell, True)),
    "sly_dmyw": _Thing(_LOW, 1.0, 0, objects.oil_stain),
    "xmbhyc": _Thing(_MIDDLE, 0.9, 3, lambda cell: devices.cabinet(cell, True)),
    "yw_gkxfw": _Thing(_HIGH, 0.9, 8, objects.hanging),
    "yw_nc": _Thing(_HIGH, 1.0, 5, lambda cell: objects.cross_arm(cell, True)),
    "gbps": _Thing(_LOW, 1.1, 6, lambda cell: objects.covers(cell, True)),
    "kgg_ybh": _Thing(_MIDDLE, 1.0, 3, lambda cell: devices.straps(cell, True)),
}
_SOUND: tuple[_Thing, ...] = (
    _dial(None),
    _dial(None),
    _breather(frozenset()),
    _person(frozenset()),
    _Thing(_HIGH, 0.8, 30, lambda cell: objects.insulator(cell, False)),
    _Thing(_LOW, 1.0, 0, objects.puddle),
    _Thing(_MIDDLE, 0.9, 3, lambda cell: devices.cabinet(cell, False)),
    _Thing(_HIGH, 0.9, 8, objects.marker),
    _Thing(_HIGH, 1.0, 5, lambda cell: objects.cross_arm(cell, False)),
    _Thing(_LOW, 1.1, 6, lambda cell: objects.covers(cell, False)),
    _Thing(_MIDDLE, 1.0, 3, lambda cell: devices.straps(cell, False)),
)


def _carriers(present: list[str], rng: np.random.Generator) -> list[frozenset[str]]:
    """Which labels each carrier has: all one, or one each."""
    if len(present) < 2 or rng.random() < _TOGETHER:
        return [frozenset(present)] if present else []
    return [frozenset([name]) for name in present]


def _arrange(labels: np.ndarray, rng: np.random.Generator) -> tuple[list[_Thing | None], int, int]:
    """What stands in each cell of a grid, row by row from the top, and the grid's columns and rows."""
    present = [name for name, there in zip(CLASSES, labels, strict=True) if there]
    things: list[_Thing | None] = [_FAULTY[name] for name in present if name in _FAULTY]
    things += [_breather(faults) for faults in _carriers([name for name in present if name in BREATHERS], rng)]
    things += [_person(faults) for faults in _carriers([name for name in present if name in PEOPLE], rng)]
    roomy = [grid for grid in _GRIDS if grid[0] * grid[1] >= len(things)] or [(5, 4)]
    columns, rows = roomy[int(rng.random() * min(2, len(roomy)))]  # the smaller ones, so that objects are large
    for _ in range(columns * rows - len(things)):
        kind = _SOUND[int(rng.random() * len(_SOUND))]
        things.append(kind if rng.random() < _CLUTTERED else None)
    # Sorted by where they are found, but loosely: things are also seen from below and from above.
    noise = rng.random(len(things)).tolist()
    order = sorted(
        range(len(things)),
        key=lambda k: (_MIDDLE if (thing := things[k]) is None else thing.height) + noise[k],
    )
    cells: list[_Thing | None] = []
    for row in range(rows):
        here = order[row * columns : (row + 1) * columns]
        cells += [things[here[int(k)]] for k in rng.permutation(columns)]
    return cells, columns, rows


def paint(
    labels: np.ndarray, look: SiteLook, backdrops: np.ndarray, rng: np.random.Generator, side: int
) -> Image.Image:
    """A image with the labelled defects and some sound objects.

    Args:
        labels: 0 or 1 for each of ``CLASSES``, [17].
        look: The site's look.
        backdrops: Share of each of ``BACKDROPS``, [4].
        rng: The image's generator.
        side: Canvas pixels a side.

    Returns:
        RGB, ``side`` pixels a side.
    """
    cells, columns, rows = _arrange(labels, rng)
    canvas = Canvas(side, look.surface, SMOOTH, rng, look)
    kind = int(np.searchsorted(np.cumsum(backdrops)[:-1], rng.random(), side="right"))
    BACKDROPS[kind](canvas.brush)
    pitch_x, pitch_y = 1.9 / columns, 1.9 / rows
    for place, thing in enumerate(cells):
        jitter_x, jitter_y, scale, tilt = rng.random(4).tolist()
        if thing is None:
            continue
        x = -0.95 + (place % columns + 0.5 + 0.16 * (jitter_x - 0.5)) * pitch_x
        y = -0.95 + (place // columns + 0.5 + 0.16 * (jitter_y - 0.5)) * pitch_y
        size = min(pitch_x / thing.width, pitch_y) * (0.38 + 0.08 * scale)
        thing.draw(canvas.brush.at(x, y, size, thing.tilt * (2 * tilt - 1)))
    return canvas.drawing()


def draw(settings: SyntheticSettings, seed: int, site: str, number: int, size: int) -> np.ndarray:
    """Image ``number`` of a site, uint8 RGB [size, size, 3]; its labels are row ``number`` of ``draw_labels``.

    Args:
        settings: What to draw.
        seed: Seed of all draws.
        site: The site.
        number: From 0.
        size: Pixels a side, at least 32.

    Raises:
        UserError: The set has no such site.
    """
    look, backdrops = _prepared(settings, site)
    labels, rng = PLANTED.begin(settings, seed, site, number)
    return photograph(paint(labels, look, backdrops, rng, OVERSAMPLING * size), look, rng, size)


@lru_cache(maxsize=128)
def _prepared(settings: SyntheticSettings, site: str) -> tuple[SiteLook, np.ndarray]:
    return site_look(settings, site), backdrop_shares(settings, site)


sites = site_counts
site_group, draw_labels = PLANTED.site_group, PLANTED.draw_labels
prevalences, strength_matrix = PLANTED.prevalences, PLANTED.strength_matrix
