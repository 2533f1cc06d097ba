"""The formats that can be read, one reader module each. A new format is one module and one line in ``FORMATS``.

A reader module satisfies ``Format``. It may also offer what ``ReportsNearMisses``, ``HasTreeRoot`` and
``DeclaresProblem`` declare; the functions below use the default where it does not. Readers are imported whenever
settings are read, so they import heavy libraries inside functions.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

from models.settings.section import Section
from tasks.core.problem_kind import Kind as ProblemKind

if TYPE_CHECKING:
    from tasks.data.source.sample import RawSample
    from tasks.data.source.settings import SourceSettings

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
Kind = Literal["folder", "file", "either", "none"]


@runtime_checkable
class Format(Protocol):
    """A reader module.

    Attributes:
        Settings: What only this format needs; it becomes the section ``ingest.<format>`` of params.yaml.
        LAYOUT: The expected layout in one line, for error messages.
        KIND: What ``ingest.path`` has to be; ``none``: the format reads no files.
    """

    Settings: type[Section]
    LAYOUT: str
    KIND: Kind

    def read(self, root: Path, options: Any, source: "SourceSettings", seed: int) -> "Iterator[RawSample]":
        """Yield every input file once, in a fixed order, images undecoded.

        Args:
            root: ``ingest.path``.
            options: The format's own ``Settings``.
            source: Settings that all formats share: which files are left out, how sites are named.
            seed: The run's seed, which synthetic images depend on.
        """

    def default_classes(self, root: Path, options: Any, source: "SourceSettings") -> list[str] | None:
        """Return the labels that the source itself declares, ``None`` if it declares none."""

    def recognise(self, root: Path, names: Sequence[str]) -> str:
        """Say in one line why the files look like this format ("30 XML files with the names of images"), else "".

        Args:
            root: The folder or file.
            names: The files in it, relative to it.
        """


@runtime_checkable
class ReportsNearMisses(Protocol):
    """Optional part of a format: files that nearly are of it."""

    def near_misses(self, root: Path, names: Sequence[str]) -> list[str]:
        """Return a line for each file that lacks something ("labels.csv has no column of labels ...")."""


@runtime_checkable
class HasTreeRoot(Protocol):
    """Optional part of a format: the folder that belongs to a single file."""

    def tree_root(self, root: Path) -> Path:
        """Return the folder that is searched when ``ingest.path`` is the file ``root``."""


@runtime_checkable
class DeclaresProblem(Protocol):
    """Optional part of a format: sources whose images have exactly one label each."""

    def problem_kind(self, options: Any) -> ProblemKind:
        """Return ``single_label`` if every image has exactly one label by the format itself."""


def load_format(name: str) -> Format:
    """Import the reader module of a format, a key of ``FORMATS``."""
    return cast(Format, import_module(FORMATS[name]))


def near_misses(reader: Format, root: Path, names: Sequence[str]) -> list[str]:
    """Return the format's near misses; none if it cannot tell."""
    return reader.near_misses(root, names) if isinstance(reader, ReportsNearMisses) else []


def tree_root(reader: Format, file: Path) -> Path:
    """Return the folder that is searched when ``ingest.path`` is a file; by default, the one that holds it."""
    return reader.tree_root(file) if isinstance(reader, HasTreeRoot) else file.parent


def problem_kind(reader: Format, options: Any) -> ProblemKind:
    """Return the kind of problem that a format's sources pose; by default, ``multi_label``."""
    return reader.problem_kind(options) if isinstance(reader, DeclaresProblem) else "multi_label"
