"""What every reader yields: one record per input file, image or not."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

STATUSES = ("ok", "fixed", "quarantined", "ignored")


@dataclass(frozen=True)
class RawSample:
    """One input file as a reader found it.

    Attributes:
        path: Path of the input relative to the source's root, POSIX separators.
        site: Who owns it.
        labels: Image-level labels as written in the annotation; ``None`` means unlabelled, ``()`` a negative.
        status: One of ``STATUSES``; only ``ok`` and ``fixed`` samples enter the data set.
        reason: Code from the closed list ``tasks.data.manifest.REASONS``; ``""`` for plain ``ok``.
        image: uint8 RGB array [H, W, 3], already turned upright; ``None`` when there is none to use.
        width: Pixels after turning upright, 0 when unknown.
        height: Pixels after turning upright, 0 when unknown.
        sha256: Hash of the file's bytes (for drawn images: of the pixels).
        split: ``train``, ``val`` or ``test`` when the source says so, else ``None``.
        detail: One line for a person: what exactly was wrong.
    """

    path: str
    site: str
    labels: tuple[str, ...] | None
    status: str = "ok"
    reason: str = ""
    image: "np.ndarray | None" = None
    width: int = 0
    height: int = 0
    sha256: str = ""
    split: str | None = None
    detail: str = ""
