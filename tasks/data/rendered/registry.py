"""Which drawn sets exist. A set is one module, one line here, and its name in ``RenderedSettings.set``.

A set's module offers ``CLASSES: list[str]``, ``PROMPT_NAMES: dict[str, str]``,
``sites(settings) -> dict[str, int]`` (site -> images) and
``render(settings, seed, size) -> Iterator[RawSample]``.
"""

from importlib import import_module
from types import ModuleType

from models.errors import UserError

SETS: dict[str, str] = {
    "cabinet": "tasks.data.rendered.cabinet",
}


def rendered_set(name: str) -> ModuleType:
    """The module of the set ``name``.

    Raises:
        UserError: There is no such set.
    """
    if name not in SETS:
        raise UserError("no such drawn image set", where="rendered.set", expected=" | ".join(SETS), found=name)
    return import_module(SETS[name])
