"""The set ``inspection``: a co-occurrence that follows the labels' words, drawn as ``defects``."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from models.label_aware.label_embeddings import embed_labels
from models.settings.model import LabelSettings
from tasks.data.formats.synthetic import defects, inspection
from tasks.data.formats.synthetic.inspection_labels import DRAWN_AS
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_counts

DEFAULT = SyntheticSettings(set="inspection")
PAIRS = np.triu_indices(17, 1)


def cosines(dim: int) -> np.ndarray:
    """Cosines of the pairs of labels, embedded by their names alone."""
    rows = embed_labels(LabelSettings(), inspection.SET.classes, dim)
    return (rows @ rows.T).numpy()[PAIRS]


@pytest.mark.parametrize(("dim", "least"), [(512, 0.8), (64, 0.6)])
def test_planted_and_sampled_co_occurrence_follow_the_words_at_every_site(dim: int, least: float) -> None:
    words = cosines(dim)
    for site in site_counts(DEFAULT):
        planted = inspection.SET.strength_matrix(DEFAULT, site)[PAIRS]
        assert np.corrcoef(words, planted)[0, 1] > least
        seen = np.corrcoef(inspection.SET.sample_labels(DEFAULT, 0, site, 2000).T.astype(float))[PAIRS]
        assert np.corrcoef(words, seen)[0, 1] > least - 0.1


def test_the_sets_with_other_factors_do_not_follow_their_words() -> None:
    rows = embed_labels(LabelSettings(prompt_names=defects.SET.prompts), defects.SET.classes, 512)
    planted = defects.SET.strength_matrix(SyntheticSettings(set="defects"), "site-1")[PAIRS]
    assert np.corrcoef((rows @ rows.T).numpy()[PAIRS], planted)[0, 1] < 0.5


def test_labels_have_the_planted_joint_probabilities() -> None:
    labels = inspection.SET.sample_labels(DEFAULT, 1, "site-3", 4000)
    model = inspection.SET.model(DEFAULT, "site-3")
    thresholds, strength = model.thresholds(), model.strength()
    assert (
        np.abs(labels.mean(0) - model.prevalence) < 4 * np.sqrt(model.prevalence * (1 - model.prevalence) / 4000)
    ).all()
    for i, j in ((1, 2), (14, 15), (5, 12), (0, 9)):
        expected = multivariate_normal.cdf(-thresholds[[i, j]], cov=[[1, strength[i, j]], [strength[i, j], 1]])
        assert (labels[:, i] & labels[:, j]).mean() == pytest.approx(expected, abs=4.5 * (expected / 4000) ** 0.5)
    assert 3 < labels.sum(1).mean() < 4


def test_sites_differ_in_prevalence_only() -> None:
    sites = list(site_counts(DEFAULT))
    assert {inspection.SET.site_group(DEFAULT, site) for site in sites} == {0}
    matrices = [inspection.SET.strength_matrix(DEFAULT, site) for site in sites]
    assert all(np.array_equal(matrices[0], other) for other in matrices)
    assert not np.allclose(inspection.SET.prevalences(DEFAULT, sites[0]), inspection.SET.prevalences(DEFAULT, sites[1]))
    assert np.array_equal(
        inspection.SET.strength_matrix(SyntheticSettings(set="inspection", correlation=0), "site-1"), np.eye(17)
    )


def test_every_label_is_drawn_as_the_defect_of_its_name() -> None:
    assert sorted(DRAWN_AS) == sorted(defects.SET.classes)
    for name, code in zip(inspection.SET.classes, DRAWN_AS, strict=True):
        ours = set(inspection.SET.prompts[name].split()) - {"with", "on", "the"}
        assert ours & set(defects.SET.prompts[code].replace("'s", "").split()) or name.startswith("overhead"), name
    labels = inspection.SET.sample_labels(DEFAULT, 3, "site-2", 5)
    for number, present in enumerate(labels):
        names = [DRAWN_AS[place] for place in present.nonzero()[0]]
        as_codes = np.array([code in names for code in defects.SET.classes], dtype=np.uint8)
        _, rng = inspection.SET.begin(DEFAULT, 3, "site-2", number)
        expected = defects.render_labels(DEFAULT, "site-2", as_codes, rng, 32)
        assert np.array_equal(inspection.SET.render(DEFAULT, 3, "site-2", number, 32), expected)
