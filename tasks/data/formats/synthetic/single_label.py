"""A single-label set: its classes, its sites' class mixtures, its images by number.

Image i of a site depends on (seed, set, site, i) and on the settings of appearance and prevalence only, not on the
number of images. Its generator first samples the class, then renders the image.

Sites belong to groups (yards of one kind, networks of one kind). Each group has a class mixture, from which its sites
deviate a little; ``site_prevalence`` moves a site from the shared mixture to its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic.camera import OVERSAMPLING, photograph
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import SiteLook, site_look, site_number

_MAX_SITE_SHIFT = 0.35  # largest deviation of a site's log-odds from its group's, either way


@dataclass(frozen=True, eq=False)
class SingleLabelSet:
    """A synthetic data set whose images have one label each.

    Attributes:
        name: The set's name, part of every seed.
        prompts: Class -> words for text embeddings, in label order.
        shared: Share of each class in all sites together, [C]; sums to 1.
        groups: Class shares of each group of sites, [C] each; a site's group is its number modulo their count.
        paint: Draws an image of a class: (class, look, generator, canvas pixels a side) -> RGB drawing.
    """

    name: str
    prompts: dict[str, str]
    shared: tuple[float, ...]
    groups: tuple[tuple[float, ...], ...]
    paint: Callable[[str, SiteLook, np.random.Generator, int], Image.Image]

    def __post_init__(self) -> None:
        for shares in (self.shared, *self.groups):
            assert len(shares) == len(self.prompts)
            assert abs(sum(shares) - 1) < 1e-9

    @property
    def classes(self) -> list[str]:
        """The class names in label order."""
        return list(self.prompts)

    def site_group(self, settings: SyntheticSettings, site: str) -> int:
        """Return the group of a site, from 0.

        Raises:
            UserError: The set has no such site.
        """
        return site_number(settings, site) % len(self.groups)

    def prevalences(self, settings: SyntheticSettings, site: str) -> np.ndarray:
        """Return the planted class shares of a site, float64 [C]; they sum to 1 and depend on no seed.

        Raises:
            UserError: The set has no such site.
        """
        group = np.array(self.groups[self.site_group(settings, site)])
        deviation = numpy_generator(0, f"rendered/{self.name}/prevalence", client=site).uniform(-1, 1, len(group))
        own = group * np.exp(_MAX_SITE_SHIFT * deviation)
        away = settings.prevalence_shift
        return (1 - away) * np.array(self.shared) + away * own / own.sum()

    def sample_labels(self, settings: SyntheticSettings, seed: int, site: str, n: int) -> np.ndarray:
        """Sample the labels of a site's first n images, uint8 [n, C] in label order, one 1 in every row.

        Raises:
            UserError: The set has no such site.
        """
        labels = np.zeros((n, len(self.prompts)), dtype=np.uint8)
        for number in range(n):
            labels[number, self._class(settings, site, self._generator(seed, site, number))] = 1
        return labels

    def render(self, settings: SyntheticSettings, seed: int, site: str, number: int, size: int) -> np.ndarray:
        """Render image ``number`` of a site, uint8 RGB [size, size, 3].

        Raises:
            UserError: The set has no such site.
        """
        rng = self._generator(seed, site, number)
        name = self.classes[self._class(settings, site, rng)]
        look = site_look(settings, site)
        return photograph(self.paint(name, look, rng, OVERSAMPLING * size), look, rng, size, Image.Resampling.NEAREST)

    def _generator(self, seed: int, site: str, number: int) -> np.random.Generator:
        return numpy_generator(seed, f"rendered/{self.name}", client=f"{site}/{number}")

    def _class(self, settings: SyntheticSettings, site: str, rng: np.random.Generator) -> int:
        return int(np.searchsorted(_bounds(self, settings, site), rng.random(), side="right"))


@lru_cache(maxsize=128)
def _bounds(images: SingleLabelSet, settings: SyntheticSettings, site: str) -> np.ndarray:
    """Return where in [0, 1) each class but the first begins."""
    return np.cumsum(images.prevalences(settings, site))[:-1]
