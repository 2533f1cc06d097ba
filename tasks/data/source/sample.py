"""The record that readers yield for each input file, image or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.data.images.image import ImageSource

STATUSES = ("ok", "fixed", "quarantined", "ignored")


@dataclass(frozen=True)
class Boxes:
    """The boxes of an annotation; only invalid ones are noted, as labels are those of the whole image.

    Attributes:
        sides: ``(xmin, ymin, xmax, ymax)`` of every box, NaN if a side is missing or not a number.
        relative: Whether the sides are shares of width and height (YOLO), not pixels.
        declared: Width and height in pixels as the annotation declares them, ``None`` if it does not.
    """

    sides: tuple[tuple[float, float, float, float], ...] = ()
    relative: bool = False
    declared: tuple[float, float] | None = None

    def count_invalid(self, width: float, height: float) -> int:
        """Count boxes that are inverted, of zero area, incomplete or outside an image of this size."""
        slack = 1e-3 if self.relative else 0.0  # rounded decimals, not a wrong box
        right, bottom = (1.0 + slack, 1.0 + slack) if self.relative else (width, height)
        # NaN fails every comparison, so an incomplete box counts.
        return sum(not (-slack <= x1 < x2 <= right and -slack <= y1 < y2 <= bottom) for x1, y1, x2, y2 in self.sides)


@dataclass(frozen=True)
class RawSample:
    """One input file as a reader found it. The image is decoded later, in parallel.

    Attributes:
        path: Path of the input relative to the source's root, POSIX separators.
        site: Its owner.
        labels: Image-level labels as written in the annotation; ``None`` means unlabelled, ``()`` a negative.
        status: One of ``STATUSES``; only ``ok`` and ``fixed`` samples enter the data set.
        reason: Code from the closed list ``tasks.data.ingest.manifest.REASONS``; ``""`` for plain ``ok``.
        image: The source of its pixels; ``None`` for other files. A quarantined row may have one too: it is decoded for
            its size and hash.
        sha256: Hash of the file's bytes, for files without an ``image``.
        split: ``train``, ``val`` or ``test`` if the source defines it, else ``None``.
        group: Images of one group (one source photograph) are never divided between splits; ``""``: no group.
        detail: One human-readable line on what exactly was wrong.
        boxes: Boxes that the annotation gives, compared with the decoded size.
        fields: Columns of the image's row in a table, for the rules that name sites and groups by column.
        sidecars: Rows of the annotation files that belong to this image alone; they follow it in the manifest, and
            their invalid boxes are noted there. Without any, those of ``boxes`` are noted on this row.
    """

    path: str
    site: str
    labels: tuple[str, ...] | None
    status: str = "ok"
    reason: str = ""
    image: "ImageSource | None" = None
    sha256: str = ""
    split: str | None = None
    group: str = ""
    detail: str = ""
    boxes: Boxes = Boxes()
    fields: Mapping[str, str] = field(default_factory=dict)
    sidecars: tuple["RawSample", ...] = ()
