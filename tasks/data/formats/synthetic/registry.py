"""The synthetic data sets. A set is one module, one line here, and its name in ``SyntheticSettings.set``."""

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from models.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from tasks.data.formats.synthetic.settings import SyntheticSettings

SETS: dict[str, str] = {
    "cabinet": "tasks.data.formats.synthetic.cabinet",
    "defects": "tasks.data.formats.synthetic.defects",
    "inspection": "tasks.data.formats.synthetic.inspection",
    "scrap": "tasks.data.formats.synthetic.scrap",
    "scenes": "tasks.data.formats.synthetic.scenes",
}
SINGLE_LABEL = ("scrap", "scenes")  # sets whose images have exactly one label each


class SyntheticSet(Protocol):
    """A set with C classes, ``SET`` of its module; its methods raise a UserError for an unknown site."""

    @property
    def classes(self) -> list[str]:
        """The class names in label order."""
        ...

    @property
    def prompts(self) -> dict[str, str]:
        """Class -> words for text embeddings, in label order."""
        ...

    def site_group(self, settings: "SyntheticSettings", site: str) -> int:
        """Return the group of a site, from 0; sites of a group have similar labels."""
        ...

    def prevalences(self, settings: "SyntheticSettings", site: str) -> "np.ndarray":
        """Return the planted share of a site's images with each label, float64 [C]."""
        ...

    def sample_labels(self, settings: "SyntheticSettings", seed: int, site: str, n: int) -> "np.ndarray":
        """Sample the labels of a site's first n images, uint8 [n, C]."""
        ...

    def render(self, settings: "SyntheticSettings", seed: int, site: str, number: int, size: int) -> "np.ndarray":
        """Render image ``number`` of a site, uint8 RGB [size, size, 3]."""
        ...


def synthetic_set(name: str) -> SyntheticSet:
    """Return the set ``name``.

    Raises:
        UserError: There is no such set.
    """
    if name not in SETS:
        raise UserError("no such synthetic data set", where="synthetic.set", expected=" | ".join(SETS), found=name)
    return cast("SyntheticSet", import_module(SETS[name]).SET)
