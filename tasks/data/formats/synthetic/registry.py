"""Which drawn sets exist. A set is one module, one line here, and its name in ``SyntheticSettings.set``.

A set's module offers ``CLASSES: list[str]``, ``PROMPT_NAMES: dict[str, str]``,
``sites(settings) -> dict[str, int]`` (site -> images), ``draw_labels(settings, seed, site, n) -> uint8 [n, C]`` (of the
site's first n images), ``draw(settings, seed, site, number, size) -> uint8 [size, size, 3]``,
``prevalences(settings, site) -> float [C]`` and ``site_group(settings, site) -> int``; multi-label sets also
``strength_matrix(settings, site) -> float [C, C]``.
"""

from importlib import import_module
from types import ModuleType

from models.errors import UserError

SETS: dict[str, str] = {
    "cabinet": "tasks.data.formats.synthetic.cabinet",
    "defects": "tasks.data.formats.synthetic.defects",
    "scrap": "tasks.data.formats.synthetic.scrap",
    "scenes": "tasks.data.formats.synthetic.scenes",
}


def synthetic_set(name: str) -> ModuleType:
    """The module of the set ``name``.

    Raises:
        UserError: There is no such set.
    """
    if name not in SETS:
        raise UserError("no such drawn image set", where="synthetic.set", expected=" | ".join(SETS), found=name)
    return import_module(SETS[name])
