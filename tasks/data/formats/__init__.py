"""The readers, one module per input format; a new format is one module and one line here.

A reader module offers

- ``read(settings: IngestSettings, seed: int) -> Iterator[RawSample]``: every input file once, in a fixed order,
- ``default_classes(settings) -> list[str] | None``: the labels that the format itself declares, if it does,
- ``where(settings) -> str``: the place that error messages name,
- ``LAYOUT: str``: the expected layout in one line, for error messages.
"""

from importlib import import_module
from types import ModuleType

FORMATS: dict[str, str] = {
    "rendered": "tasks.data.formats.rendered",
    "voc": "tasks.data.formats.voc",
}


def reader(source: str) -> ModuleType:
    """The reader module of a format; ``source`` is a key of ``FORMATS``."""
    return import_module(FORMATS[source])
