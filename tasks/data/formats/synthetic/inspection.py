"""The synthetic data set ``inspection``: images of ``defects`` whose label co-occurrence follows the labels' words.

A label graph made from embeddings of the words (FMMAN's) can help only where words that are close belong to labels that
occur together. In ``inspection_labels`` they do, at every site. The drawings are those of ``defects``.

Image i of a site depends on (seed, set, site, i) and on the settings of appearance and co-occurrence only.
"""

import numpy as np

from tasks.data.formats.synthetic import defects
from tasks.data.formats.synthetic.inspection_labels import CLASSES, DRAWN_AS, PLANTED, PROMPT_NAMES
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_counts

__all__ = [
    "CLASSES",
    "PROMPT_NAMES",
    "prevalences",
    "render",
    "sample_labels",
    "site_group",
    "sites",
    "strength_matrix",
]

_PLACES = [DRAWN_AS.index(code) for code in defects.CLASSES]  # of the drawings' labels among ours


def render(settings: SyntheticSettings, seed: int, site: str, number: int, size: int) -> np.ndarray:
    """Render image ``number`` of a site, uint8 RGB [size, size, 3]; its labels: row ``number`` of ``sample_labels``.

    Args:
        settings: Settings of the set.
        seed: Seed of labels and images.
        site: The site.
        number: From 0.
        size: Pixels a side, at least 32.

    Raises:
        UserError: The set has no such site.
    """
    labels, rng = PLANTED.begin(settings, seed, site, number)
    return defects.render_labels(settings, site, labels[_PLACES], rng, size)


sites = site_counts
site_group, sample_labels = PLANTED.site_group, PLANTED.sample_labels
prevalences, strength_matrix = PLANTED.prevalences, PLANTED.strength_matrix
