"""Backdrops of the set ``defects``: four kinds, one of which dominates at each site."""

from collections.abc import Callable

import numpy as np

from tasks.data.formats.synthetic import scenes_objects as objects
from tasks.data.formats.synthetic.pen import mix
from tasks.data.formats.synthetic.scenes_objects import BLACK, CONCRETE, STEEL, WHITE, box
from tasks.data.formats.synthetic.scenes_parts import outdoors
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.single_canvas import GRAVEL, LEAVES, RUST, SMOOTH, Brush
from tasks.data.formats.synthetic.sites import site_number

_DOMINANT_SHARE = 0.7  # of a site's dominant kind at full background shift


def _yard(brush: Brush) -> None:
    """Draw a gravel yard below a low strip of sky."""
    horizon = brush.between(-0.75, -0.3)
    outdoors(brush, horizon, GRAVEL)
    objects.transformer(brush.at(brush.between(-0.6, 0.6), horizon + 0.15, brush.between(0.25, 0.45)))


def _sky(brush: Brush) -> None:
    """Draw a view from below, mostly sky."""
    outdoors(brush, brush.between(0.45, 0.8), LEAVES)


def _steel(brush: Brush) -> None:
    """Draw the lattice legs and the beam of a gantry, close."""
    horizon = brush.between(0.1, 0.5)
    outdoors(brush, horizon, GRAVEL)
    colour = mix(STEEL, BLACK, brush.between(0.1, 0.4))
    for x in (brush.between(-0.9, -0.3), brush.between(0.3, 0.9)):
        objects.lattice(brush, (x, 1.0), (x, -1.0), 0.2, 0.14, 6, colour)
    y = brush.between(-0.8, -0.4)
    for edge in (y, y + 0.16):
        brush.bar((-1, edge), (1, edge), 0.05, colour)


def _wall(brush: Brush) -> None:
    """Draw a plastered or brick wall above a concrete path."""
    foot = brush.between(0.3, 0.7)
    wall = mix(brush.look.surface, WHITE, brush.between(0.1, 0.4))
    bricks = brush.rng.random() < 0.5
    box(brush, -1, -1, 1, foot, wall, RUST if bricks else SMOOTH)
    joint = mix(wall, BLACK, 0.3)
    if bricks:
        for course, y in enumerate(np.arange(foot, -1, -0.2).tolist()):
            brush.bar((-1, y), (1, y), 0.016, joint, None)
            for x in np.arange(-1 + 0.2 * (course % 2), 1, 0.4).tolist():
                brush.bar((x, y), (x, y - 0.2), 0.016, joint, None)
    else:
        x = brush.between(-0.8, 0.3)
        box(brush, x, -0.7, x + 0.5, -0.1, mix((60, 76, 96), WHITE, brush.between(0, 0.3)))
        brush.bar((x + 0.25, -0.7), (x + 0.25, -0.1), 0.03, WHITE)
    box(brush, -1, foot, 1, 1, mix(CONCRETE, brush.look.surface, 0.3), GRAVEL)


BACKDROPS: tuple[Callable[[Brush], None], ...] = (_yard, _wall, _steel, _sky)


def backdrop_shares(settings: SyntheticSettings, site: str) -> np.ndarray:
    """Return a site's share of images with each of ``BACKDROPS``, float64 [4]; equal shares without background shift.

    Raises:
        UserError: The set has no such site.
    """
    kinds, shift = len(BACKDROPS), settings.shift("background")
    own = np.full(kinds, (1 - _DOMINANT_SHARE) / (kinds - 1))
    own[site_number(settings, site) % kinds] = _DOMINANT_SHARE
    return (1 - shift) / kinds + shift * own
