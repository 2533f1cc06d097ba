"""A multi-label set: its labels and their planted co-occurrence, its sites' conventions, its images by number.

Image i of a site depends on (seed, set, site, i) and on the settings of appearance and co-occurrence only, not on the
number of images. Its generator first samples the labels, then renders the image.

Sites follow the conventions in rotation. ``site_correlation`` moves a site from the shared loadings to those of its
convention (v to -v on one factor), ``site_prevalence`` from the shared prevalences to its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic.latent import LabelModel, LabelSampler
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_number

# Words for text embeddings, shared prevalence, shared loadings on the K factors
Label = tuple[str, float, tuple[float, ...]]
LOG_ODDS_SHIFT = 0.55  # largest deviation of a site's log-odds from the shared ones, either way


@dataclass(frozen=True, eq=False)
class MultiLabelSet:
    """A synthetic data set whose images may have several of C labels; K factors determine which.

    Attributes:
        name: The set's name, part of every seed.
        labels: The labels in their order.
        conventions: For each convention the labels that it inverts, and the number of the factor on which.
        bounds: Lowest and highest prevalence of a label at any site.
        draw: Renders a photograph with given labels: (settings, site, 0 or 1 for each label [C], the image's
            generator, pixels a side) -> uint8 RGB [size, size, 3].
    """

    name: str
    labels: dict[str, Label]
    conventions: tuple[tuple[Sequence[str], int], ...]
    bounds: tuple[float, float]
    draw: Callable[[SyntheticSettings, str, np.ndarray, np.random.Generator, int], np.ndarray]

    @property
    def classes(self) -> list[str]:
        """The label names in their order."""
        return list(self.labels)

    @property
    def prompts(self) -> dict[str, str]:
        """Label -> words for text embeddings."""
        return {name: words for name, (words, _, _) in self.labels.items()}

    @cached_property
    def prevalence(self) -> np.ndarray:
        """The shared prevalence of each label, [C]."""
        return np.array([prevalence for _, prevalence, _ in self.labels.values()])

    @cached_property
    def loadings(self) -> np.ndarray:
        """The shared loadings, [C, K]."""
        return np.array([loadings for _, _, loadings in self.labels.values()])

    def site_group(self, settings: SyntheticSettings, site: str) -> int:
        """Return the convention of a site; 0 is the shared one.

        Raises:
            UserError: The set has no such site.
        """
        return site_number(settings, site) % len(self.conventions)

    def model(self, settings: SyntheticSettings, site: str) -> LabelModel:
        """Return the label model of a site, the ground truth; it depends on the settings, never on a seed.

        Raises:
            UserError: The set has no such site.
        """
        inverted, factor = self.conventions[self.site_group(settings, site)]
        loadings = self.loadings.copy()
        loadings[[self.classes.index(name) for name in inverted], factor] *= (
            1 - 2 * settings.site_correlation
        )  # from v to -v
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
        labels = np.zeros((n, len(self.labels)), dtype=np.uint8)
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

    def render(self, settings: SyntheticSettings, seed: int, site: str, number: int, size: int) -> np.ndarray:
        """Render image ``number`` of a site, uint8 RGB [size, size, 3]; its labels are those of ``begin``.

        Raises:
            UserError: The set has no such site.
        """
        labels, rng = self.begin(settings, seed, site, number)
        return self.draw(settings, site, labels, rng, size)


@lru_cache(maxsize=128)
def _sampler(images: MultiLabelSet, settings: SyntheticSettings, site: str) -> LabelSampler:
    return LabelSampler(images.model(settings, site))
