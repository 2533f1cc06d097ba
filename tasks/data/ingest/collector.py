"""Collects samples as they stream by: manifest rows, label repairs, duplicates."""

import difflib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tasks.data.decoding.chunk_files import DecodeResult
from tasks.data.formats.shared.pairing import NEARLY_NAMED
from tasks.data.formats.shared.tree import UNCLEAR_FOLDER
from tasks.data.ingest.sidecar_images import Companions, Pair, find_companions
from tasks.data.source.rules import NameFunction
from tasks.data.source.sample import Boxes, RawSample
from tasks.data.source.settings import Unlabelled
from tasks.data.text.read_text import normalize


class Collector:
    """Collects the samples one by one; at the end it knows which images stay, and why the others do not.

    Args:
        classes: Declared labels; ``None``: those that are found count.
        aliases: Label as found -> declared label.
        keep_negatives: Whether images without any label stay.
        group_of: The rule that derives an image's group.
        masks: How masks next to their photographs are treated.
        unlabelled: How images without an annotation are treated (``ingest.unlabelled``).
    """

    def __init__(
        self,
        classes: list[str] | None,
        aliases: dict[str, str],
        keep_negatives: bool,
        group_of: NameFunction,
        masks: Companions = "ask",
        unlabelled: Unlabelled = "refuse",
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.alias_counts: Counter[str] = Counter(dict.fromkeys(aliases, 0))
        self.unknown: dict[str, list[str]] = defaultdict(list)  # label -> paths of its images
        self._classes, self._aliases = set(classes) if classes is not None else None, aliases
        self._keep_negatives, self._group_of = keep_negatives, group_of
        self.companions: list[Pair] = []  # known after ``select_images``
        self._masks = masks
        self._first: dict[str, dict[str, Any]] = {}  # hash -> the row that holds it
        self._conflicts: set[str] = set()
        self._unlabelled = unlabelled
        self._waiting: list[tuple[dict[str, Any], dict[str, Any]]] = []  # rows without an annotation, and their pixels

    def add(self, sample: RawSample, result: DecodeResult | None) -> None:
        """Record a sample, what decoding its image gave, and the rows of its annotations."""
        row = self._row(sample)
        self.rows.append(row)
        if result is not None:
            self._decoded(row, sample, result)
        for sidecar in sample.sidecars:
            extra = self._row(sidecar)
            self.rows.append(extra)
            if result is not None and result.width:
                _check_boxes(extra, sidecar.boxes, result)
        if result is not None and result.width and not sample.sidecars:
            _check_boxes(row, sample.boxes, result)
        if result is not None and row["status"] in ("ok", "fixed"):
            self._accept(row, sample, result)
        elif result is not None and self._unlabelled != "refuse" and _is_unannotated(row, sample):
            self._waiting.append((row, self._stored(sample, result)))

    def select_images(self) -> list[dict[str, Any]]:
        """Apply the rules that need all rows; return the rows of the images that stay, in order."""
        self.companions = find_companions(self.rows)
        for pair in self.companions:
            row, note = pair.row, f"{'mask of' if pair.mask else 'same name as'} {pair.photograph['path']}"
            row["detail"] = "; ".join(filter(None, (row["detail"], note)))
            unlabelled = row["labels"] is None and row["reason"] in ("no_annotation", "flat", "bad_mode")
            if pair.mask and (self._masks == "drop" or (unlabelled and self._masks == "ask")):
                row["status"], row["reason"], row["slot"] = "ignored", "mask", None
        self._decide_unlabelled()
        for row in self.rows:
            if row["sha256"] in self._conflicts and (row["slot"] is not None or row["reason"] == "duplicate"):
                first = self._first[row["sha256"]]
                others = "" if row is first else f"same bytes as {first['path']}, which has {first['labels']}"
                _quarantine(row, "duplicate_conflict", others or "other files with the same bytes have other labels")
            elif row["slot"] is not None and row["labels"] == [] and not self._keep_negatives:
                row["status"], row["reason"], row["slot"] = "ignored", "negative", None
        return [row for row in self.rows if row["slot"] is not None]

    def _decoded(self, row: dict[str, Any], sample: RawSample, result: DecodeResult) -> None:
        row |= {
            "sha256": result.sha256,
            "width": result.width,
            "height": result.height,
            "few_colours": result.few_colours,
        }
        warnings = [sample.detail, result.detail]
        if result.status == "quarantined":  # a fault of the image itself comes before one of its annotation
            row["status"], row["reason"] = result.status, result.reason
            warnings.append(sample.reason)
        elif result.status == "fixed" and sample.status == "ok":
            row["status"], row["reason"] = result.status, result.reason
        elif result.reason:
            warnings.append(f"also {result.reason}")
        row["detail"] = "; ".join(filter(None, warnings))

    def _decide_unlabelled(self) -> None:
        """Keep or skip the images without an annotation; those with the bytes of an earlier image are duplicates."""
        for row, stored in self._waiting:
            if row["reason"] not in ("no_annotation", "unlabelled"):  # a mask
                continue
            first = self._first.setdefault(row["sha256"], row)
            if first is not row:
                _quarantine(row, "duplicate", f"same bytes as {first['path']}")
            elif self._unlabelled == "skip":
                row["status"], row["reason"] = "ignored", "unlabelled_skipped"
            else:
                row["status"], row["reason"] = "ok", "unlabelled"
                row |= stored

    def _stored(self, sample: RawSample, result: DecodeResult) -> dict[str, Any]:
        """Return where an image's pixels are, their hashes and its group: what a row of the data set has."""
        group = sample.group or self._group_of(sample.path, sample.fields)
        slot = (result.chunk, result.row)
        return {"slot": slot, "pixels": result.pixels, "phash": result.phash, "group": group}

    def _accept(self, row: dict[str, Any], sample: RawSample, result: DecodeResult) -> None:
        if row["labels"] is None and sample.reason != "unlabelled":
            _quarantine(row, "no_annotation", "")
        if row["labels"] is None and self._unlabelled != "refuse":
            self._waiting.append((row, self._stored(sample, result)))
            return
        if row["reason"] == "no_annotation":
            return
        unknown = sorted(set(row["labels"] or ()) - self._classes) if self._classes is not None else []
        if unknown:
            for label in unknown:
                self.unknown[label].append(row["path"])
            _quarantine(row, "unknown_label", ", ".join(unknown))
            return
        self.alias_counts.update(label for label in map(normalize, sample.labels or ()) if label in self._aliases)
        first = self._first.setdefault(row["sha256"], row)
        if first is not row:
            if first["labels"] != row["labels"]:
                self._conflicts.add(row["sha256"])
            _quarantine(row, "duplicate", f"same bytes as {first['path']}")
            return
        if row["labels"] is None:
            return
        row |= self._stored(sample, result)

    def _row(self, sample: RawSample) -> dict[str, Any]:
        labels = None
        if sample.labels is not None:
            labels = sorted({self._aliases.get(label, label) for label in map(normalize, sample.labels)})
        return {
            "path": sample.path, "status": sample.status, "reason": sample.reason, "site": sample.site,
            "sha256": sample.sha256, "split": sample.split, "detail": sample.detail,
            "labels": labels, "width": 0, "height": 0, "slot": None, "pixels": "", "phash": "", "group": "",
            "few_colours": "",
        }  # fmt: skip


def _is_unannotated(row: dict[str, Any], sample: RawSample) -> bool:
    """Check that a sound image has no annotation, and that no folder or file may be one after all."""
    return row["reason"] == "no_annotation" and not sample.detail.startswith((UNCLEAR_FOLDER, NEARLY_NAMED))


def group_names(rows: list[dict[str, Any]], near: Sequence[tuple[int, int]] = ()) -> list[str]:
    """Return the group of each image that stays; a group is never divided between splits.

    Images form a group if they have the same pixels (in different files), the same ``group``, or are near duplicates,
    directly or through other images.

    Args:
        rows: The N rows.
        near: Pairs of rows that are near duplicates.

    Returns:
        N names, each the path of the group's first image; "" for an image that is in no group.
    """
    links = list(near)
    for name in ("pixels", "group"):
        first: dict[str, int] = {}
        heads = [(first.setdefault(row[name], number), number) for number, row in enumerate(rows) if row[name]]
        links += [(head, number) for head, number in heads if head != number]
    if not links:
        return [""] * len(rows)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    starts, ends = zip(*links, strict=True)
    matrix = coo_array(([True] * len(links), (starts, ends)), shape=(len(rows), len(rows)))
    _, component = connected_components(matrix, directed=False)
    sizes = Counter(component.tolist())
    names: dict[int, str] = {}
    for row, number in zip(rows, component.tolist(), strict=True):
        names.setdefault(number, row["path"])
    return [names[number] if sizes[number] > 1 else "" for number in component.tolist()]


def describe_unknown_labels(unknown: dict[str, list[str]], classes: list[str]) -> list[str]:
    """Return a line per unknown label, most frequent first, with the nearest known label and the first files."""
    folded = {name.casefold(): name for name in reversed(classes)}
    lines = []
    for label, paths in sorted(unknown.items(), key=lambda item: (-len(item[1]), item[0])):
        near = difflib.get_close_matches(label.casefold(), list(folded), n=1, cutoff=0.4)
        nearest = f"nearest known label {folded[near[0]]!r}" if near else "no known label is similar"
        files = ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
        lines.append(f"{label!r} in {len(paths)} image(s), {nearest}: {files}")
    return lines


def _check_boxes(row: dict[str, Any], boxes: Boxes, result: DecodeResult) -> None:
    """Note invalid boxes, and a declared size that is not the image's."""
    actual = (result.width, result.height)
    swapped = result.sides_swapped and boxes.declared == actual[::-1] != actual
    warnings = []
    invalid = boxes.count_invalid(*(actual[::-1] if swapped else actual))
    if invalid:
        if row["status"] == "ok":
            row["status"], row["reason"] = "fixed", "odd_box"
        warnings.append(f"{invalid} invalid box(es)")
    if swapped:
        warnings.append("boxes fit the image before its EXIF transposition")
    elif boxes.declared and boxes.declared != actual:
        declared = f"{boxes.declared[0]:g} x {boxes.declared[1]:g}"
        warnings.append(f"declares {declared}, the image has {actual[0]} x {actual[1]}")
    row["detail"] = "; ".join(filter(None, (row["detail"], *warnings)))


def _quarantine(row: dict[str, Any], reason: str, detail: str) -> None:
    row["status"], row["reason"], row["slot"] = "quarantined", reason, None
    row["detail"] = "; ".join(filter(None, (detail, row["detail"] if reason != "duplicate_conflict" else "")))
