"""idx files such as Fashion-MNIST and MNIST: images and labels in two files per split, plain or gzipped.

The files are ``NAME-images-idx3-ubyte`` and ``NAME-labels-idx1-ubyte``, also with a dot before ``idx``. A name with
``train`` in it is for training, any other (``t10k``) for testing. An image's path is that of its file and its position
in it.
"""

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.core.problem_kind import Kind
from tasks.data.formats.shared.tree import ONE_SITE, Entry, make_file_row, make_image_row, scan, unclassified_rows
from tasks.data.images.image import ImageArray
from tasks.data.source.rules import compile_rule
from tasks.data.source.sample import RawSample

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "train-images-idx3-ubyte.gz with train-labels-idx1-ubyte.gz, and t10k-... for testing"
KIND = "folder"
_FILE = re.compile(r"(.*)\b(images|labels)[-.]idx[13]-ubyte(?:\.gz)?")
NAMES = {
    "fashion": ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"],
    "digits": [str(digit) for digit in range(10)],
}  # fmt: skip


class Settings(Section):
    """What the numbers in the label files mean."""

    names: Literal["fashion", "digits"] = Field("fashion", description="Fashion-MNIST's ten names, or the digits.")


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> list[str]:
    """Return the ten labels in the order of their indices."""
    return list(NAMES[options.names])


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise files with idx names."""
    found = [name for name in names if (match := _FILE.fullmatch(name)) and match[2] == "images"]
    return f"{', '.join(found[:2])}" if found else ""


def problem_kind(options: Settings) -> Kind:
    """Return "single_label"."""
    return "single_label"


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, then every image of every pair of files.

    Raises:
        UserError: There is no pair of files, one is damaged, or the numbers of images and labels differ.
    """
    tree = scan(root, source)
    matches = [(match, entry) for entry in tree.others if (match := _FILE.fullmatch(entry.name))]
    found = {(match[1], match[2]): entry for match, entry in reversed(matches)}  # plain before gzipped
    images = [(part, entry) for (part, what), entry in sorted(found.items()) if what == "images"]
    pairs = [(entry, found.get((part, "labels"))) for part, entry in images]
    lost = [image.name for image, labels in pairs if labels is None]
    if lost or not pairs:
        without = f"no labels for {', '.join(lost)}" if lost else "none"
        raise UserError("no pair of idx files", where=root, expected=LAYOUT, found=without)
    used = {entry.name: entry for pair in pairs for entry in pair if entry is not None}
    yield from unclassified_rows(tree, used)
    yield from (make_image_row(entry, "no_annotation", "an image file beside idx files") for entry in tree.images)
    yield from (make_file_row(used[name], "ok", "metadata") for name in sorted(used))
    site_of, names = compile_rule(source.site, "ingest.site", ONE_SITE), NAMES[options.names]
    for file, labels in pairs:
        assert labels is not None
        pixels, numbers = _array(file, 3), _array(labels, 1)
        if len(pixels) != len(numbers):
            counts = f"{len(pixels)} images, {len(numbers)} labels"
            raise UserError("the numbers of images and labels differ", where=file.path, found=counts)
        split = "train" if "train" in PurePosixPath(file.name).name else "test"
        for index, (image, number) in enumerate(zip(pixels, numbers.tolist(), strict=True)):
            name = f"{file.name}/{index:06d}"
            known = number < len(names)
            yield RawSample(
                name,
                site_of(name, {}),
                (names[number],) if known else None,
                "ok" if known else "quarantined",
                "" if known else "bad_annotation",
                ImageArray(image),
                split=split,
                detail="" if known else f"label {number}, there are {len(names)}",
            )


def _array(entry: Entry, dimensions: int) -> np.ndarray:
    """Return the file's uint8 array: magic number (0, 0, 8 = unsigned byte, dimensions), big-endian sizes, values."""
    try:
        data = entry.path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError("cannot read the file", where=entry.path, found=error) from error
    head = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, 8, dimensions)) or len(data) < head:
        expected = f"an idx file of unsigned bytes in {dimensions} dimension(s)"
        raise UserError(
            "the content does not match the idx name", where=entry.path, expected=expected, found=data[:4].hex(" ")
        )
    shape = np.frombuffer(data, ">u4", dimensions, 4).astype(np.int64)
    if len(data) - head != int(shape.prod()):
        found = f"{len(data) - head} bytes for {' x '.join(map(str, shape))}"
        raise UserError("the idx file is truncated or too long", where=entry.path, found=found)
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape.tolist())
