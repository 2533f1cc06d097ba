"""Images without labels, in any folders: for checking them before they are labelled."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from models.settings.section import Section
from tasks.data.formats.shared.tree import NO_SITE, make_image_row, scan, unclassified_rows
from tasks.data.images.image import ImageFile
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.source.sample import RawSample

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "images in any folders"
KIND = "folder"


class Settings(Section):
    """Images need no settings."""


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> None:
    """Return ``None``: there are no labels."""
    return


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise any image; this format is asked last."""
    count = sum(PurePosixPath(name).suffix.lower() in SUFFIXES for name in names)
    return f"{count} images, and nothing that names labels" if count else ""


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, images in name order; none has a label.

    Raises:
        UserError: The site rule does not fit the tree.
    """
    tree = scan(root, source)
    yield from unclassified_rows(tree)
    for entry in tree.images:
        if entry.site == NO_SITE:
            yield make_image_row(entry, "no_site", "ingest.site names no site for it")
        else:
            yield RawSample(entry.name, entry.site, None, reason="unlabelled", image=ImageFile(entry.path))
