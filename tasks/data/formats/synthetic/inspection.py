"""The synthetic data set ``inspection``: images of ``defects`` whose label co-occurrence follows the labels' words.

A label graph made from embeddings of the words (FMMAN's) can help only where words that are close belong to labels that
occur together. In ``inspection_labels`` they do, at every site. The drawings are those of ``defects``.
"""

import numpy as np

from tasks.data.formats.synthetic import defects
from tasks.data.formats.synthetic.defects_labels import LABELS as DRAWINGS
from tasks.data.formats.synthetic.inspection_labels import DRAWN_AS, LABELS
from tasks.data.formats.synthetic.multi_label import MultiLabelSet
from tasks.data.formats.synthetic.settings import SyntheticSettings

_PLACES = [DRAWN_AS.index(code) for code in DRAWINGS]  # of the drawings' labels among ours


def _draw(
    settings: SyntheticSettings, site: str, labels: np.ndarray, rng: np.random.Generator, size: int
) -> np.ndarray:
    return defects.render_labels(settings, site, labels[_PLACES], rng, size)


SET = MultiLabelSet("inspection", LABELS, (((), 0),), (0.08, 0.42), _draw)  # one convention
