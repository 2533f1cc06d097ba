"""The labels of a multi-label set: prevalences, planted co-occurrence, and conventions of sites.

Sites follow the conventions in rotation. ``site_correlation`` moves a site from the shared loadings to those of its
convention (v to -v on one factor), ``site_prevalence`` from the shared prevalences to its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic.latent import LabelModel, LabelSampler
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_number

LOG_ODDS_SHIFT = 0.55  # largest deviation of a site's log-odds from the shared ones, either way


@dataclass(frozen=True, eq=False)
class PlantedLabels:
    """The ground truth of a set; C labels, K factors. It depends on the settings, never on a seed.

    Attributes:
        name: The set's name, part of every seed.
        prevalence: Shared prevalence of each label, [C].
        loadings: Shared loadings, [C, K].
        conventions: For each convention the labels that it inverts, as indices, and the factor on which.
        bounds: Lowest and highest prevalence of a label at any site.
    """

    name: str
    prevalence: np.ndarray
    loadings: np.ndarray
    conventions: tuple[tuple[Sequence[int], int], ...]
    bounds: tuple[float, float]

    def site_group(self, settings: SyntheticSettings, site: str) -> int:
        """Return the convention of a site; 0 is the shared one.

        Raises:
            UserError: The set has no such site.
        """
        return site_number(settings, site) % len(self.conventions)

    def model(self, settings: SyntheticSettings, site: str) -> LabelModel:
        """Return the label model of a site.

        Raises:
            UserError: The set has no such site.
        """
        inverted, factor = self.conventions[self.site_group(settings, site)]
        loadings = self.loadings.copy()
        loadings[list(inverted), factor] *= 1 - 2 * settings.site_correlation  # from v to -v
        shift = numpy_generator(0, f"rendered/{self.name}/prevalence", client=site).uniform(-1, 1, len(loadings))
        odds = self.prevalence / (1 - self.prevalence) * np.exp(settings.prevalence_shift * LOG_ODDS_SHIFT * shift)
        return LabelModel(loadings * settings.correlation**0.5, np.clip(odds / (1 + odds), *self.bounds))

    def strength_matrix(self, settings: SyntheticSettings, site: str) -> np.ndarray:
        """Return the planted co-occurrence of a site, float64 [C, C] in label order, symmetric.

        Entry (i, j) is the correlation of the latent variables behind labels i and j (see ``latent``):
        positive = co-occur more often than by chance, 0 = independent, negative = less often; 1 on the diagonal.
        It is proportional to ``settings.correlation``.

        Raises:
            UserError: The set has no such site.
        """
        return self.model(settings, site).strength()

    def prevalences(self, settings: SyntheticSettings, site: str) -> np.ndarray:
        """Return the planted share of a site's images with each label, float64 [C].

        Raises:
            UserError: The set has no such site.
        """
        return self.model(settings, site).prevalence

    def sample_labels(self, settings: SyntheticSettings, seed: int, site: str, n: int) -> np.ndarray:
        """Sample the labels of a site's first n images, uint8 [n, C] in label order.

        Raises:
            UserError: The set has no such site.
        """
        labels = np.zeros((n, len(self.prevalence)), dtype=np.uint8)
        for number in range(n):
            labels[number], _ = self.begin(settings, seed, site, number)
        return labels

    def begin(
        self, settings: SyntheticSettings, seed: int, site: str, number: int
    ) -> tuple[np.ndarray, np.random.Generator]:
        """Sample the labels of image ``number`` of a site, uint8 [C]; return also the generator to render it with.

        Raises:
            UserError: The set has no such site.
        """
        rng = numpy_generator(seed, f"rendered/{self.name}", client=f"{site}/{number}")
        return _sampler(self, settings, site).sample(rng), rng


@lru_cache(maxsize=128)
def _sampler(planted: PlantedLabels, settings: SyntheticSettings, site: str) -> LabelSampler:
    return LabelSampler(planted.model(settings, site))
