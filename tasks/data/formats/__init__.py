"""The readers, one module per input format; a new format is one module and one line here.

A reader module offers

- ``Settings``: a ``Section`` with what only this format needs; it becomes ``ingest.<format>`` in params.yaml,
- ``read(root: Path, own: Settings, ingest: SourceSettings, seed: int) -> Iterator[RawSample]``: every input file once,
  in a fixed order, images undecoded (``RawSample.image``); ``ingest.site`` names sites (``rules.namer``),
- ``default_classes(root, own, ingest) -> list[str] | None``: the labels that the source itself declares, if it does,
- ``recognise(root: Path, names: Sequence[str]) -> str``: given the relative names of the files below ``root``, one line
  that says why this looks like the format ("30 XML files with the names of images"), "" when it does not,
- ``nearly(root, names) -> list[str]``, if it can tell: for each file that nearly is of the format, one line that says
  what it lacks ("labels.csv has no column of labels ...; ingest.table.labels names it"),
- ``LAYOUT: str``: the expected layout in one line, for error messages,
- optionally ``tree_root(root) -> Path``: the folder that is searched when ``ingest.path`` is a file; else its own,
- ``KIND: str``: what ``ingest.path`` is: ``folder``, ``file``, ``either`` or ``none``.

Light modules: they are imported whenever settings are read.
"""

from importlib import import_module
from types import ModuleType

FORMATS: dict[str, str] = {
    "synthetic": "tasks.data.formats.synthetic.reader",
    "voc": "tasks.data.formats.voc.reader",
    "coco": "tasks.data.formats.coco.reader",
    "yolo": "tasks.data.formats.yolo.reader",
    "flair": "tasks.data.formats.flair.reader",
    "cifar10": "tasks.data.formats.cifar10.reader",
    "idx": "tasks.data.formats.idx.reader",
    "table": "tasks.data.formats.table.reader",
    "folder": "tasks.data.formats.folder.reader",
    "images": "tasks.data.formats.images.reader",
}


def reader(source: str) -> ModuleType:
    """The reader module of a format; ``source`` is a key of ``FORMATS``."""
    return import_module(FORMATS[source])
