"""Synthetic data sets as a source: a program renders the images, no files are read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.problem_kind import Kind
from tasks.core.source_digest import PLUMBING, closure, source_digest
from tasks.data.formats.synthetic.registry import SETS, SINGLE_LABEL, synthetic_set
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_counts
from tasks.data.images.decode import Decoded, Limits
from tasks.data.source.sample import RawSample

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

Settings = SyntheticSettings
LAYOUT = "a synthetic data set of tasks/data/formats/synthetic"
KIND = "none"


@dataclass(frozen=True)
class SyntheticImage:
    """Image ``number`` of a site, rendered when it is loaded."""

    settings: SyntheticSettings
    seed: int
    site: str
    number: int
    size: int

    def cache_key(self) -> str:
        """Return all that decides the image, the code of its set too."""
        code, settings = _set_code(self.settings.set), self.settings.model_dump_json()
        return f"{code}|{settings}|{self.seed}|{self.site}|{self.number}|{self.size}"

    def load(self, limits: Limits) -> Decoded:
        """Render the image; its hash is that of the pixels."""
        image = synthetic_set(self.settings.set).render(self.settings, self.seed, self.site, self.number, self.size)
        return Decoded(image, self.size, self.size, sha256(image.tobytes()).hexdigest())


@cache
def _set_code(name: str) -> str:
    return source_digest(closure([SETS[name]], PLUMBING))


def problem_kind(options: SyntheticSettings) -> Kind:
    """Return the kind of the set."""
    return "single_label" if options.set in SINGLE_LABEL else "multi_label"


def read(root: Path, options: SyntheticSettings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield the images of the set at ``ingest.image_size``, site by site, under virtual paths."""
    images = synthetic_set(options.set)
    for site, count in site_counts(options).items():
        for number, labels in enumerate(images.sample_labels(options, seed, site, count)):
            yield RawSample(
                f"{options.set}/{site}/{number:06d}.png",
                site,
                tuple(sorted(name for name, present in zip(images.classes, labels, strict=True) if present)),
                image=SyntheticImage(options, seed, site, number, source.image_size),
            )


def default_classes(root: Path, options: SyntheticSettings, source: "SourceSettings") -> list[str]:
    """Return the labels of the set, in its order."""
    return synthetic_set(options.set).classes


def recognise(root: Path, names: Sequence[str]) -> str:
    """Return "": synthetic sets are never found on disk."""
    return ""
