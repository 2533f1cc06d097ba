"""Labels with planted co-occurrence: a factor model with thresholds.

Label c of an image is present if z_c = v_c . f + sqrt(1 - |v_c|^2) e_c exceeds the normal quantile of
1 - p_c, with independent standard normal f [K] (shared by the labels of the image) and e [C]. So label c has
prevalence p_c exactly, z_i and z_j have correlation v_i . v_j, and the chance that both are present grows
strictly with it: 0 means independent, above 0 more often together than by chance, below 0 less often.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class LabelModel:
    """The ground truth of one site.

    Attributes:
        loadings: v, float64 [C, K]; every row is shorter than 1.
        prevalence: p, float64 [C], between 0 and 1.
    """

    loadings: np.ndarray
    prevalence: np.ndarray

    def __post_init__(self) -> None:
        assert (np.square(self.loadings).sum(1) < 1).all(), "a row of loadings is not shorter than 1"
        assert ((self.prevalence > 0) & (self.prevalence < 1)).all()

    def strength(self) -> np.ndarray:
        """Return the correlation of the latent variables, float64 [C, C], 1 on the diagonal."""
        matrix = self.loadings @ self.loadings.T
        np.fill_diagonal(matrix, 1.0)
        return matrix

    def thresholds(self) -> np.ndarray:
        """Return the thresholds above which z_c means present, float64 [C]."""
        return np.array([NormalDist().inv_cdf(1 - p) for p in self.prevalence])

    def noise_weight(self) -> np.ndarray:
        """Return the factor on each label's independent noise, float64 [C]."""
        return np.sqrt(1 - np.square(self.loadings).sum(1))


class LabelSampler:
    """Samples label vectors of one model; ``sample`` always takes K + C normal numbers from the generator."""

    def __init__(self, model: LabelModel) -> None:
        self._loadings, self._noise_weight, self._thresholds = model.loadings, model.noise_weight(), model.thresholds()

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Sample the labels of one image, uint8 [C] of 0 and 1."""
        labels, factors = self._loadings.shape
        normal = rng.standard_normal(factors + labels)
        # A plain sum, not a matrix product, whose rounding depends on the BLAS in use.
        shared = (self._loadings * normal[:factors]).sum(1)
        return (shared + self._noise_weight * normal[factors:] > self._thresholds).astype(np.uint8)
