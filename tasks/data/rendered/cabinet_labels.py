"""Which devices the cabinets hold together: labels of the set ``cabinet`` and their planted co-occurrence.

Four factors stand behind the labels of a panel: whether its bay is energised, whether an operation was left
half-way, whether it is a signalling panel, and whether it is under test. Sites follow one of three conventions:

* sites 1, 4, 7, ..: red lamps and a switch to the right mean energised (the shared convention);
* sites 2, 5, 8, ..: switches the other way round: left means energised;
* sites 3, 6, 9, ..: lamps the other way round: green stands for energised, red for not.

``site_correlation`` moves a site from the shared loadings to those of its convention, and its prevalences from
the shared ones (log-odds plus up to 0.55 either way); ``site_prevalence``, when given, moves the latter alone.
"""

import numpy as np

from tasks.data.rendered.latent import LabelModel
from tasks.data.rendered.settings import RenderedSettings
from tasks.data.rendered.sites import site_number
from tasks.randomness import numpy_generator

# label: (words for text embeddings, shared prevalence, loadings: energised, half-way, signalling, test)
_TABLE: dict[str, tuple[str, float, tuple[float, float, float, float]]] = {
    "green-green-off": ("two green indicator lamps, both off", 0.27, (-0.70, 0.00, 0.30, 0.00)),
    "green-green-red": ("two green indicator lamps and a red one, all lit", 0.20, (0.00, 0.45, 0.60, 0.00)),
    "platen-off": ("pressure plate switched off", 0.32, (-0.70, 0.00, 0.00, 0.30)),
    "platen-on": ("pressure plate switched on", 0.34, (0.75, -0.25, 0.00, 0.00)),
    "platen-on-half": ("pressure plate only half switched on", 0.20, (0.10, 0.75, 0.00, 0.25)),
    "red": ("a red indicator lamp, lit", 0.28, (0.55, 0.00, -0.50, 0.00)),
    "red-green": ("a red and a green indicator lamp, both lit", 0.24, (0.00, 0.30, 0.65, 0.00)),
    "red-red": ("two red indicator lamps, both lit", 0.27, (0.70, 0.00, 0.35, 0.00)),
    "red-red-off": ("two red indicator lamps, both off", 0.22, (-0.50, 0.00, 0.35, 0.45)),
    "switch-center": ("rotary switch in the centre position", 0.26, (0.00, -0.30, 0.00, 0.75)),
    "switch-center-half": ("rotary switch half-way out of the centre position", 0.20, (0.00, 0.75, 0.00, 0.30)),
    "switch-left": ("rotary switch turned to the left", 0.28, (-0.75, 0.00, 0.00, -0.25)),
    "switch-right": ("rotary switch turned to the right", 0.30, (0.75, 0.00, 0.00, -0.25)),
    "transformer": ("transformer symbol, not lit", 0.25, (-0.60, 0.00, -0.40, 0.00)),
    "transformer-on": ("transformer symbol, lit", 0.28, (0.65, 0.00, -0.35, -0.20)),
    "transformer-on-half": ("transformer symbol, half lit", 0.19, (0.00, 0.75, -0.20, 0.00)),
}
CLASSES: list[str] = list(_TABLE)
PROMPT_NAMES: dict[str, str] = {name: words for name, (words, _, _) in _TABLE.items()}

_PREVALENCE = np.array([prevalence for _, prevalence, _ in _TABLE.values()])
_LOADINGS = np.array([loadings for _, _, loadings in _TABLE.values()])
_SWITCHES = np.array([name in ("switch-left", "switch-right") for name in CLASSES])
_LAMPS = np.array([name.split("-")[0] in ("green", "red") for name in CLASSES])
_CONVENTIONS = (np.zeros(len(CLASSES), dtype=bool), _SWITCHES, _LAMPS)
_LOG_ODDS_SHIFT = 0.55
_LOWEST, _HIGHEST = 0.11, 0.42  # so that a small site still has positives of every label, and negatives


def label_model(settings: RenderedSettings, site: str) -> LabelModel:
    """The planted truth of a site; it depends on the settings, never on a seed.

    Raises:
        UserError: The set has no such site.
    """
    away = settings.site_correlation
    turned = _CONVENTIONS[site_group(settings, site)]
    loadings = _LOADINGS.copy()
    loadings[turned, 0] *= 1 - 2 * away  # from v to -v on the factor "energised"
    shift = numpy_generator(0, "rendered/cabinet/prevalence", client=site).uniform(-1, 1, len(CLASSES))
    odds = _PREVALENCE / (1 - _PREVALENCE) * np.exp(settings.prevalence_shift * _LOG_ODDS_SHIFT * shift)
    prevalence = np.clip(odds / (1 + odds), _LOWEST, _HIGHEST)
    return LabelModel(loadings * settings.correlation**0.5, prevalence)


def site_group(settings: RenderedSettings, site: str) -> int:
    """Which convention a site follows: 0 the shared one, 1 switches turned, 2 lamps turned.

    Raises:
        UserError: The set has no such site.
    """
    return site_number(settings, site) % len(_CONVENTIONS)


def strength_matrix(settings: RenderedSettings, site: str) -> np.ndarray:
    """The planted co-occurrence of a site, float64 [16, 16] in the order of ``CLASSES``, symmetric.

    Entry (i, j) is the correlation of the latent variables behind labels i and j (see ``latent``):
    positive = together more often than by chance, 0 = independent, negative = less often; 1 on the diagonal.
    It is proportional to ``settings.correlation``.

    Raises:
        UserError: The set has no such site.
    """
    return label_model(settings, site).strength()


def prevalences(settings: RenderedSettings, site: str) -> np.ndarray:
    """The planted share of a site's images that carry each label, float64 [16].

    Raises:
        UserError: The set has no such site.
    """
    return label_model(settings, site).prevalence
