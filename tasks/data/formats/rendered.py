"""Drawn image sets as a source: the samples come from a program, not from files."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.data.rendered.registry import rendered_set
from tasks.data.sample import RawSample

if TYPE_CHECKING:
    from tasks.data.ingest import IngestSettings

LAYOUT = "a drawn set of tasks/data/rendered"


def read(settings: "IngestSettings", seed: int) -> Iterator[RawSample]:
    """Draw the images of ``settings.rendered`` at ``settings.image_size``."""
    yield from rendered_set(settings.rendered.set).render(settings.rendered, seed, settings.image_size)


def default_classes(settings: "IngestSettings") -> list[str]:
    """The labels of the set, in its order."""
    return list(rendered_set(settings.rendered.set).CLASSES)


def where(settings: "IngestSettings") -> str:
    """The set's name."""
    return f"rendered.set: {settings.rendered.set}"
