"""What an ingest gathers while the readers' samples stream by: manifest rows, label repairs, duplicates, pixels."""

import difflib
import hashlib
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from models.errors import UserError
from tasks.data.decode import resize
from tasks.data.manifest import COUNTED_BAD
from tasks.data.sample import RawSample

if TYPE_CHECKING:
    from collections.abc import Sequence


def normal_label(label: str) -> str:
    """Without blanks around it and in Unicode's composed form; upper and lower case stay different."""
    return unicodedata.normalize("NFC", label.strip())


class ImageWriter:
    """Writes ``images.npy`` [N, 3, S, S] image by image; N is known at the end only.

    NumPy pads its header so that the first axis may grow to any length, so the header is written again at the end.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._file, self._size, self.count = path.open("w+b"), size, 0
        self._header(0)
        self._start = self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, image: np.ndarray) -> int:
        """Add an image [S, S, 3] uint8; returns its row."""
        assert image.shape == (self._size, self._size, 3), image.shape
        assert image.dtype == np.uint8, image.dtype
        self._file.write(np.ascontiguousarray(image.transpose(2, 0, 1)).tobytes())
        self.count += 1
        return self.count - 1

    def finish(self, keep: "Sequence[int]") -> None:
        """Keep only these rows, in this ascending order, and complete the header."""
        row_bytes = 3 * self._size * self._size
        for target, source in enumerate(keep):
            if target != source:  # moved towards the front one by one, so memory stays constant
                self._file.seek(self._start + source * row_bytes)
                row = self._file.read(row_bytes)
                self._file.seek(self._start + target * row_bytes)
                self._file.write(row)
        self._file.truncate(self._start + len(keep) * row_bytes)
        self._file.seek(0)
        self._header(len(keep))
        assert self._file.tell() == self._start
        self._file.flush()

    def _header(self, count: int) -> None:
        shape = (count, 3, self._size, self._size)
        np.lib.format.write_array_header_1_0(self._file, {"descr": "|u1", "fortran_order": False, "shape": shape})


class Collector:
    """Takes the samples one by one and knows at the end what is in the data set, and why the rest is not.

    Args:
        writer: Takes the pixels of accepted images.
        size: Side of the stored images in pixels.
        classes: Declared labels, ``None`` when those that are found count.
        aliases: Label as found -> declared label.
        keep_negatives: Whether images without any label stay.
    """

    def __init__(
        self, writer: ImageWriter, size: int, classes: list[str] | None, aliases: dict[str, str], keep_negatives: bool
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.alias_counts: Counter[str] = Counter(dict.fromkeys(aliases, 0))
        self._writer, self._size, self._classes, self._aliases = writer, size, classes, aliases
        self._keep_negatives = keep_negatives
        self._first: dict[str, dict[str, Any]] = {}  # hash -> the row that holds it
        self._conflicts: set[str] = set()

    def add(self, sample: RawSample) -> None:
        """Record a sample; an accepted image is resized and stored."""
        row = {
            name: getattr(sample, name) for name in ("path", "status", "reason", "site", "sha256", "split", "detail")
        }
        row |= {"width": sample.width, "height": sample.height, "labels": None, "index": None, "pixels": ""}
        self.rows.append(row)
        accepted = sample.image is not None and sample.status in ("ok", "fixed")
        if sample.labels is not None:
            row["labels"] = sorted({self._mapped(label, count=accepted) for label in sample.labels})
        if not accepted:
            return
        assert sample.image is not None
        assert sample.sha256, sample.path
        if row["labels"] is None:
            _quarantine(row, "no_annotation", "")
            return
        first = self._first.setdefault(sample.sha256, row)
        if first is not row:
            if first["labels"] != row["labels"]:
                self._conflicts.add(sample.sha256)
            _quarantine(row, "duplicate", f"same bytes as {first['path']}")
            return
        small = resize(sample.image, self._size)
        row["pixels"] = hashlib.sha256(np.ascontiguousarray(small).data).hexdigest()
        row["index"] = self._writer.append(small)

    def settle(self) -> list[dict[str, Any]]:
        """Decide what only all rows together show; returns the rows of the images that stay, in order."""
        for row in self.rows:
            if row["sha256"] in self._conflicts and (row["index"] is not None or row["reason"] == "duplicate"):
                first = self._first[row["sha256"]]
                others = "" if row is first else f"same bytes as {first['path']}, which has {first['labels']}"
                _quarantine(row, "duplicate_conflict", others or "other files with the same bytes have other labels")
            elif row["index"] is not None and not row["labels"] and not self._keep_negatives:
                row["status"], row["reason"], row["index"] = "ignored", "negative", None
        return [row for row in self.rows if row["index"] is not None]

    def check(self, kept: list[dict[str, Any]], max_bad_share: float, where: str, layout: str) -> None:
        """Refuse a source that holds nothing to use, or too much that cannot be used.

        Raises:
            UserError: No images, too many bad inputs, unknown labels, or no labels at all.
        """
        bad = [row for row in self.rows if row["reason"] in COUNTED_BAD]
        if not kept and all(row["reason"] == "no_image" for row in bad):
            negatives = sum(row["reason"] == "negative" for row in self.rows)
            found = f"{len(self.rows)} other files" + (f", {negatives} images without a label" if negatives else "")
            raise UserError("no images found", where=where, expected=layout, found=found)
        share = len(bad) / (len(bad) + len(kept))
        if share > max_bad_share:
            first = "".join(f"\n    {row['path']}: {row['reason']} {row['detail']}".rstrip() for row in bad[:8])
            raise UserError(
                f"{len(bad)} of {len(bad) + len(kept)} inputs cannot be used",
                where=where,
                expected=f"a share of at most ingest.max_bad_share = {max_bad_share:g}",
                found=f"{share:.3f}, the first:{first}",
                hint="mend or remove the files, or raise ingest.max_bad_share",
            )
        self._refuse_unknown_labels(kept, where)
        if not any(row["labels"] for row in kept):
            raise UserError("no image has a label", where=where, found=f"{len(kept)} images without any object")

    def _mapped(self, label: str, count: bool) -> str:
        label = normal_label(label)
        if label not in self._aliases:
            return label
        self.alias_counts[label] += count
        return self._aliases[label]

    def _refuse_unknown_labels(self, kept: list[dict[str, Any]], where: str) -> None:
        if self._classes is None:
            return
        unknown: dict[str, list[str]] = defaultdict(list)
        for row in kept:
            for label in set(row["labels"]) - set(self._classes):
                unknown[label].append(row["path"])
        if not unknown:
            return
        folded = {name.casefold(): name for name in reversed(self._classes)}
        lines = []
        for label, paths in sorted(unknown.items(), key=lambda item: (-len(item[1]), item[0])):
            near = difflib.get_close_matches(label.casefold(), list(folded), n=1, cutoff=0.4)
            nearest = f"nearest known label {folded[near[0]]!r}" if near else "no known label is near"
            files = ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
            lines.append(f"\n    {label!r} in {len(paths)} image(s), {nearest}: {files}")
        raise UserError(
            f"{len(unknown)} unknown label(s)",
            where=where,
            expected=", ".join(self._classes),
            found="".join(lines),
            hint="correct the annotations, or name the labels in ingest.classes or ingest.label_aliases",
        )


def _quarantine(row: dict[str, Any], reason: str, detail: str) -> None:
    row["status"], row["reason"], row["index"] = "quarantined", reason, None
    row["detail"] = "; ".join(filter(None, (detail, row["detail"] if reason != "duplicate_conflict" else "")))
