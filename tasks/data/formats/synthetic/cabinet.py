"""The synthetic data set ``cabinet``: front panels of control cabinets, 16 labels of device states, several sites.

The labels are those of the Control Cabinet Condition set of the FMMAN paper. Images, label co-occurrence
(``cabinet_labels``) and differences between sites (``sites``, ``camera``) are synthetic. ``cabinet_devices`` draws
the device of each label.

A panel may have no labelled device: a true negative. Flipping an image horizontally changes its
labels (switch-left, switch-right).
"""

import numpy as np
from PIL import Image, ImageDraw

from tasks.data.formats.synthetic.cabinet_devices import CLUTTER, DARK, DEVICES, WHITE
from tasks.data.formats.synthetic.cabinet_labels import CONVENTIONS, LABELS
from tasks.data.formats.synthetic.camera import OVERSAMPLING, photograph
from tasks.data.formats.synthetic.multi_label import MultiLabelSet
from tasks.data.formats.synthetic.pen import Pen, mix
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import SiteLook, site_look

_GRIDS = ((2, 2), (3, 2), (2, 3), (3, 3), (4, 3), (3, 4), (4, 4))  # columns, rows
_SECOND_COPY = 0.15  # probability that a labelled device occurs twice
_CLUTTERED = 0.6  # probability that a free cell contains a device without a label
_MARGIN = 0.03  # free border around the grid, in panel sides


def render_image(labels: np.ndarray, look: SiteLook, rng: np.random.Generator, size: int) -> np.ndarray:
    """Render a photograph of a panel with the labelled devices and some without a label.

    Args:
        labels: 0 or 1 for each of ``LABELS``, [16].
        look: The site's appearance.
        rng: The image's generator.
        size: Pixels a side.

    Returns:
        uint8 RGB [size, size, 3].
    """
    side = OVERSAMPLING * size
    surface = mix(look.surface, WHITE if rng.random() < 0.5 else DARK, 0.12 * float(rng.random()))
    drawing = Image.new("RGB", (side, side), surface)
    draw = ImageDraw.Draw(drawing)
    draw.rectangle((0, 0, side - 1, side - 1), outline=mix(surface, DARK, 0.7), width=max(1, side // 50))
    devices = [DEVICES[name] for name, present in zip(LABELS, labels, strict=True) if present]
    devices += [device for device in devices if rng.random() < _SECOND_COPY]
    roomy = [grid for grid in _GRIDS if grid[0] * grid[1] >= len(devices)] or [_GRIDS[-1]]
    columns, rows = roomy[int(rng.random() * min(2, len(roomy)))]  # the smaller grids, so that devices are large
    places = rng.permutation(columns * rows)
    # With more devices than cells, only second copies, which come last, are omitted.
    devices = devices[: len(places)]
    clutter = [CLUTTER[int(k)] for k in rng.integers(0, len(CLUTTER), size=len(places) - len(devices))]
    filled = [*devices, *(kind for kind in clutter if rng.random() < _CLUTTERED)]
    pitch_x, pitch_y = side * (1 - 2 * _MARGIN) / columns, side * (1 - 2 * _MARGIN) / rows
    for place, device in zip(places, filled, strict=False):
        column, row = int(place) % columns, int(place) // columns
        jitter_x, jitter_y, scale = rng.random(3)
        device(
            Pen(
                draw,
                side * _MARGIN + (column + 0.5 + 0.08 * (jitter_x - 0.5)) * pitch_x,
                side * _MARGIN + (row + 0.5 + 0.08 * (jitter_y - 0.5)) * pitch_y,
                min(pitch_x, pitch_y) * (0.40 + 0.08 * scale),
                rng,
                look,
            )
        )
    return photograph(drawing, look, rng, size)


def _draw(
    settings: SyntheticSettings, site: str, labels: np.ndarray, rng: np.random.Generator, size: int
) -> np.ndarray:
    return render_image(labels, site_look(settings, site), rng, size)


# The lowest prevalence is such that a small site still has positives of every label, and negatives
SET = MultiLabelSet("cabinet", LABELS, CONVENTIONS, (0.11, 0.42), _draw)
