"""The sites of a synthetic data set: names, shares of the images, and appearance of their photographs.

Nothing here is random: site k looks the same for every seed and every number of sites.
"""

from dataclasses import dataclass
from functools import lru_cache

from models.errors import UserError
from tasks.data.formats.synthetic.settings import Cause, SyntheticSettings

RGB = tuple[int, int, int]

SHARES = (1.4, 1.2, 1.0, 1.0, 0.8, 0.6)  # repeated when there are more sites

# Colours of painted sheet steel: pebble grey, light grey, slate, reseda green, pigeon blue, cream.
SURFACES: tuple[RGB, ...] = (
    (184, 183, 168),
    (205, 208, 208),
    (104, 112, 120),
    (128, 148, 124),
    (112, 132, 156),
    (214, 196, 152),
)
NEUTRAL_SURFACE: RGB = (160, 164, 160)

# Lowest and highest value over sites; the middle is the value of every site at site_shift = 0.
RANGES: dict[str, tuple[float, float]] = {
    "brightness": (0.62, 1.12),
    "warmth": (-0.17, 0.17),
    "gradient": (0.05, 0.40),
    "yaw": (-0.06, 0.06),
    "pitch": (-0.05, 0.05),
    "roll": (-4.0, 4.0),
    "blur": (0.0, 0.7),
    "noise": (1.0, 9.0),
    "fading": (0.0, 0.5),
}
_CAUSES: dict[str, Cause] = dict.fromkeys(RANGES, "lighting")
_CAUSES.update(yaw="viewpoint", pitch="viewpoint", roll="viewpoint", blur="blur", noise="blur")
_STEPS = (2, 3, 5, 7, 11, 13, 19, 29, 31)  # a prime for each range; see site_look


@dataclass(frozen=True)
class SiteLook:
    """Appearance of a site's photographs.

    Attributes:
        surface: Colour of the panel, RGB 0-255.
        brightness: Factor on all channels.
        warmth: White balance; red is multiplied by 1 + warmth, blue by 1 - warmth.
        gradient: Fall-off of the light across the image, as a fraction of its mean.
        yaw: Camera from the left (-) or right (+): shrinkage of the far edge, fraction of the image.
        pitch: The same from below (-) or above (+).
        roll: Rotation of the camera in degrees.
        blur: Standard deviation of the blur in pixels of a 64-pixel image.
        noise: Standard deviation of the sensor noise in grey levels.
        fading: Fading of coloured lenses, 0 new to 1 grey.
    """

    surface: RGB
    brightness: float
    warmth: float
    gradient: float
    yaw: float
    pitch: float
    roll: float
    blur: float
    noise: float
    fading: float


def site_names(settings: SyntheticSettings) -> list[str]:
    """Return ``site-1`` to ``site-N``."""
    return [f"site-{number}" for number in range(1, settings.sites + 1)]


def site_number(settings: SyntheticSettings, site: str) -> int:
    """Return the 0-based number of a site.

    Raises:
        UserError: The set has no such site.
    """
    names = site_names(settings)
    if site not in names:
        raise UserError("no such site", where=f"synthetic.sites = {settings.sites}", expected=names, found=site)
    return names.index(site)


def site_counts(settings: SyntheticSettings) -> dict[str, int]:
    """Divide ``images`` among the sites: one each, the rest by ``SHARES`` with largest remainders."""
    shares = [SHARES[number % len(SHARES)] for number in range(settings.sites)]
    exact = [(settings.images - settings.sites) * share / sum(shares) for share in shares]
    counts = [1 + int(value) for value in exact]
    by_remainder = sorted(range(settings.sites), key=lambda number: (int(exact[number]) - exact[number], number))
    for number in by_remainder[: settings.images - sum(counts)]:
        counts[number] += 1
    return dict(zip(site_names(settings), counts, strict=True))


@lru_cache(maxsize=128)
def site_look(settings: SyntheticSettings, site: str) -> SiteLook:
    """Return the appearance of a site: the neutral one, shifted towards the site's own by a factor per cause.

    Raises:
        UserError: The set has no such site.
    """
    number, shift = site_number(settings, site), settings.shift("background")
    own = SURFACES[number % len(SURFACES)]
    red, green, blue = (round(n + shift * (o - n)) for n, o in zip(NEUTRAL_SURFACE, own, strict=True))
    values = {}
    for step, (name, (low, high)) in zip(_STEPS, RANGES.items(), strict=True):
        # Multiples of an irrational step fill [0, 1) evenly for any number of sites; each trait has its own step.
        position = (0.5 + (number + 1) * step**0.5) % 1
        values[name] = low + (high - low) * (0.5 + settings.shift(_CAUSES[name]) * (position - 0.5))
    return SiteLook(surface=(red, green, blue), **values)
