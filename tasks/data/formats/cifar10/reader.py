"""CIFAR-10 as published: pickled batches, read by torchvision, which checks their md5 sums first.

Unpickling runs code, so a batch with another checksum is refused and never opened. CIFAR-10 saved as image files in
class folders is read by the format ``folder``. An image's path is its split and its position in it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from models.errors import UserError
from models.settings.section import Section
from tasks.core.problem_kind import Kind
from tasks.data.formats.shared.tree import ONE_SITE, make_file_row, make_image_row, scan, unclassified_rows
from tasks.data.images.image import ImageArray
from tasks.data.source.rules import compile_rule
from tasks.data.source.sample import RawSample

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "the folder cifar-10-batches-py, unpacked from cifar-10-python.tar.gz, or the folder that holds it"
KIND = "folder"
_FOLDER = "cifar-10-batches-py"
_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


class Settings(Section):
    """CIFAR-10 needs no settings."""


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> list[str]:
    """Return the ten classes in the order of their indices."""
    return list(_CLASSES)


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise the batches by their names."""
    batches = [name for name in names if PurePosixPath(name).name.startswith("data_batch_")]
    meta = any(PurePosixPath(name).name == "batches.meta" for name in names)
    return f"{len(batches)} files data_batch_N beside batches.meta" if batches and meta else ""


def problem_kind(options: Settings) -> Kind:
    """Return "single_label"."""
    return "single_label"


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, then the 50,000 training and 10,000 test images.

    Raises:
        UserError: The batches are missing, or their md5 sums are not the published ones.
    """
    from torchvision.datasets import CIFAR10

    base = root.parent if root.resolve().name == _FOLDER else root
    try:
        parts = {split: CIFAR10(str(base), train=split == "train", download=False) for split in ("train", "test")}
    except RuntimeError as error:
        raise UserError(
            "not the published batches of CIFAR-10; they are not unpickled",
            where=root,
            expected=LAYOUT,
            found=error,
            hint="unpack the archive again; image files in class folders are read with ingest.source=folder",
        ) from error
    tree = scan(root, source)
    known = {"batches.meta", "test_batch", *(f"data_batch_{number}" for number in range(1, 6))}
    batches = [entry for entry in tree.others if PurePosixPath(entry.name).name in known]
    yield from unclassified_rows(tree, {entry.name for entry in batches})
    yield from (make_image_row(entry, "no_annotation", "an image file beside the batches") for entry in tree.images)
    yield from (make_file_row(entry, "ok", "metadata") for entry in batches)
    site_of = compile_rule(source.site, "ingest.site", ONE_SITE)
    for split, part in parts.items():
        for index, (pixels, number) in enumerate(zip(part.data, part.targets, strict=True)):
            name = f"{_FOLDER}/{split}/{index:05d}"
            label = _CLASSES[number]
            yield RawSample(name, site_of(name, {}), (label,), image=ImageArray(pixels), split=split)
