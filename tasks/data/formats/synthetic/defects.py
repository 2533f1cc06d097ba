"""The synthetic data set ``defects``: substations, 17 labels of defects, rule violations and one state.

The labels are those of the substation defect set (``defects_labels``). Images, label co-occurrence and differences
between sites (``sites``, ``camera``, ``defects_backdrops``) are synthetic. The intact counterpart of every labelled
object occurs too, in images with and without the label: an intact insulator, a person with a helmet, a closed door.
So a label means the defect, not the object. ``defects_devices``, ``defects_objects`` and ``defects_persons`` draw the
objects.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tasks.data.formats.synthetic import defects_devices as devices
from tasks.data.formats.synthetic import defects_objects as objects
from tasks.data.formats.synthetic.camera import OVERSAMPLING, photograph
from tasks.data.formats.synthetic.defects_backdrops import BACKDROPS, backdrop_shares
from tasks.data.formats.synthetic.defects_labels import BREATHERS, CONVENTIONS, LABELS, PEOPLE
from tasks.data.formats.synthetic.defects_persons import person
from tasks.data.formats.synthetic.multi_label import MultiLabelSet
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.single_canvas import SMOOTH, Brush, Canvas
from tasks.data.formats.synthetic.sites import SiteLook, site_look

_HIGH, _MIDDLE, _LOW = 0.0, 1.0, 2.0  # typical height of an object; see _arrange
_TOGETHER = 0.5  # probability that one person carries all labels of people, and one breather all of breathers
_CLUTTERED = 0.55  # probability that a free cell contains an intact object
_GRIDS = ((2, 2), (3, 2), (2, 3), (3, 3), (4, 3))  # columns, rows


@dataclass(frozen=True)
class DefectsObject:
    """An object to be drawn.

    Attributes:
        height: ``_HIGH``, ``_MIDDLE`` or ``_LOW``.
        width: Relative to its height; slim objects can be drawn larger.
        tilt: Largest random rotation in degrees, either way.
        draw: Draws it into a cell.
    """

    height: float
    width: float
    tilt: float
    draw: Callable[[Brush], None]


def _breather(faults: frozenset[str]) -> DefectsObject:
    return DefectsObject(_MIDDLE, 0.75, 6, lambda cell: devices.breather(cell, faults))


def _person(faults: frozenset[str]) -> DefectsObject:
    bare_head, plain_clothes, smoking = (name in faults for name in PEOPLE)
    return DefectsObject(_LOW, 0.7, 4, lambda cell: person(cell, bare_head, plain_clothes, smoking))


def _dial(fault: str | None) -> DefectsObject:
    return DefectsObject(_MIDDLE, 1.0, 12, lambda cell: devices.dial(cell, fault))


FAULTY: dict[str, DefectsObject] = {
    **{name: _dial(name) for name in ("bj_bpmh", "bj_bpps", "bj_wkps", "bjdsyc")},
    "jyz_pl": DefectsObject(_HIGH, 0.8, 30, lambda cell: objects.insulator(cell, True)),
    "sly_dmyw": DefectsObject(_LOW, 1.0, 0, objects.oil_stain),
    "xmbhyc": DefectsObject(_MIDDLE, 0.9, 3, lambda cell: devices.cabinet(cell, True)),
    "yw_gkxfw": DefectsObject(_HIGH, 0.9, 8, objects.hanging),
    "yw_nc": DefectsObject(_HIGH, 1.0, 5, lambda cell: objects.cross_arm(cell, True)),
    "gbps": DefectsObject(_LOW, 1.1, 6, lambda cell: objects.covers(cell, True)),
    "kgg_ybh": DefectsObject(_MIDDLE, 1.0, 3, lambda cell: devices.straps(cell, True)),
}
_INTACT: tuple[DefectsObject, ...] = (
    _dial(None),
    _dial(None),
    _breather(frozenset()),
    _person(frozenset()),
    DefectsObject(_HIGH, 0.8, 30, lambda cell: objects.insulator(cell, False)),
    DefectsObject(_LOW, 1.0, 0, objects.puddle),
    DefectsObject(_MIDDLE, 0.9, 3, lambda cell: devices.cabinet(cell, False)),
    DefectsObject(_HIGH, 0.9, 8, objects.marker),
    DefectsObject(_HIGH, 1.0, 5, lambda cell: objects.cross_arm(cell, False)),
    DefectsObject(_LOW, 1.1, 6, lambda cell: objects.covers(cell, False)),
    DefectsObject(_MIDDLE, 1.0, 3, lambda cell: devices.straps(cell, False)),
)


def _carriers(present: list[str], rng: np.random.Generator) -> list[frozenset[str]]:
    """Distribute labels to objects: all to one, or one each."""
    if len(present) < 2 or rng.random() < _TOGETHER:
        return [frozenset(present)] if present else []
    return [frozenset([name]) for name in present]


def _arrange(labels: np.ndarray, rng: np.random.Generator) -> tuple[list[DefectsObject | None], int, int]:
    """Choose the object of each cell of a grid, row by row from the top; return them, and the columns and rows."""
    present = [name for name, positive in zip(LABELS, labels, strict=True) if positive]
    chosen: list[DefectsObject | None] = [FAULTY[name] for name in present if name in FAULTY]
    chosen += [_breather(faults) for faults in _carriers([name for name in present if name in BREATHERS], rng)]
    chosen += [_person(faults) for faults in _carriers([name for name in present if name in PEOPLE], rng)]
    roomy = [grid for grid in _GRIDS if grid[0] * grid[1] >= len(chosen)] or [(5, 4)]
    columns, rows = roomy[int(rng.random() * min(2, len(roomy)))]  # the smaller grids, so that objects are large
    for _ in range(columns * rows - len(chosen)):
        kind = _INTACT[int(rng.random() * len(_INTACT))]
        chosen.append(kind if rng.random() < _CLUTTERED else None)
    # Roughly sorted by height, as objects are also seen from below and from above.
    noise = rng.random(len(chosen)).tolist()
    order = sorted(
        range(len(chosen)),
        key=lambda k: (_MIDDLE if (item := chosen[k]) is None else item.height) + noise[k],
    )
    cells: list[DefectsObject | None] = []
    for row in range(rows):
        here = order[row * columns : (row + 1) * columns]
        cells += [chosen[here[int(k)]] for k in rng.permutation(columns)]
    return cells, columns, rows


def paint(
    labels: np.ndarray, look: SiteLook, backdrops: np.ndarray, rng: np.random.Generator, side: int
) -> Image.Image:
    """Draw an image with the labelled defects and some intact objects.

    Args:
        labels: 0 or 1 for each of ``LABELS``, [17].
        look: The site's appearance.
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
    for place, item in enumerate(cells):
        jitter_x, jitter_y, scale, tilt = rng.random(4).tolist()
        if item is None:
            continue
        x = -0.95 + (place % columns + 0.5 + 0.16 * (jitter_x - 0.5)) * pitch_x
        y = -0.95 + (place // columns + 0.5 + 0.16 * (jitter_y - 0.5)) * pitch_y
        size = min(pitch_x / item.width, pitch_y) * (0.38 + 0.08 * scale)
        item.draw(canvas.brush.at(x, y, size, item.tilt * (2 * tilt - 1)))
    return canvas.drawing()


def render_labels(
    settings: SyntheticSettings, site: str, labels: np.ndarray, rng: np.random.Generator, size: int
) -> np.ndarray:
    """Render a photograph of a site with given labels, uint8 RGB [size, size, 3].

    Args:
        settings: Settings of the set.
        site: The site.
        labels: 0 or 1 for each of ``LABELS``, [17].
        rng: The image's generator.
        size: Pixels a side, at least 32.

    Raises:
        UserError: The set has no such site.
    """
    look, backdrops = site_look(settings, site), backdrop_shares(settings, site)
    return photograph(paint(labels, look, backdrops, rng, OVERSAMPLING * size), look, rng, size)


SET = MultiLabelSet("defects", LABELS, CONVENTIONS, (0.04, 0.42), render_labels)
