"""The audit: reports what a source holds and what is wrong with it, and whether an ingest would accept it.

It uses the same readers, decoding and rules as an ingest, but keeps no pixels and changes nothing.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.decoding.parallel import Decoding
from tasks.data.formats import FORMATS, load_format, near_misses
from tasks.data.formats.shared.foreign_formats import foreign_file, foreign_set
from tasks.data.formats.shared.tree import scan, shared_scans
from tasks.data.ingest.collector import Collector, describe_unknown_labels
from tasks.data.ingest.manifest import COUNTED_BAD, reason_counts
from tasks.data.ingest.reading import (
    Progress,
    Source,
    collect,
    is_unlabelled_only,
    open_source,
    refuse_unusable,
    select_images,
)
from tasks.data.ingest.settings import IngestSettings
from tasks.data.source.rules import NameRule
from tasks.data.source.sample import STATUSES

Row = dict[str, Any]
#: The format of unlabelled images, used when no other format is recognised.
IMAGES_ONLY = "images"
_BY_NAME_ONLY = ("folder", IMAGES_ONLY)  # formats recognised by names only
_ANNOTATED = ("voc", "coco", "yolo", "table")  # formats recognised by the content of files
_MAX_NEAR = 8  # reported near misses


def guess_format(path: Path, settings: IngestSettings | None = None) -> tuple[str, str]:
    """Guess the format of a folder or file; return it and one line with the reason.

    The readers are asked in the order of ``FORMATS``. If none recognises a folder, it is read as images without labels,
    so that every file is listed.

    Args:
        path: The folder or file.
        settings: What is left out.

    Raises:
        UserError: There is no such file or folder, or the file is of no known format.
    """
    folder = path.is_dir()
    if not folder and not path.is_file():
        raise UserError("no such file or folder", where="PATH", found=path)
    names = [path.name]
    if folder:
        tree = scan(path, (settings or IngestSettings()).model_copy(update={"site": NameRule.model_validate({})}))
        names = sorted(entry.name for entry in tree.images + tree.others)
    near: list[str] = []
    layouts = []
    for name in FORMATS:
        reader = load_format(name)
        if reader.KIND in ("either", "folder" if folder else "file"):
            layouts.append(f"\n    {name}: {reader.LAYOUT}")
            why = reader.recognise(path, names)
            if why:
                note = _foreign_note(path, names, len(tree.images)) if name in _BY_NAME_ONLY else ""
                note += _unused_formats(path, names, name)
                return name, why + note + (_near_misses_note(near) if name == IMAGES_ONLY else "")
            near += near_misses(reader, path, names)
    if not folder:
        kind = foreign_file(path)
        hint = "name its format with --format; to check images, pass their folder"
        found = kind or "".join(f"\n    {line}" for line in near[:_MAX_NEAR]) or None
        raise UserError("the file is of no known format", where=path, expected="".join(layouts), found=found, hint=hint)
    note = _foreign_note(path, names, len(tree.images))
    return IMAGES_ONLY, f"no known format was recognised{note}{_near_misses_note(near)}"


def _unused_formats(path: Path, names: Sequence[str], taken: str) -> str:
    """Return a note on annotations of another format that are read but not used; "" if there are none."""
    others = [name for name in _ANNOTATED if name != taken and load_format(name).KIND in ("either", "folder")]
    found = [
        (name, load_format(name).recognise(path, names)) for name in others if taken in _ANNOTATED and path.is_dir()
    ]
    return "".join(f"; also found but not used, {name}: {why}" for name, why in found if why)


def _foreign_note(path: Path, names: Sequence[str], images: int) -> str:
    """Return a note on annotations that no reader understands, "" if there are none.

    Raises:
        UserError: They are those of most images.
    """
    found = foreign_set(path, names, images)
    if found is None:
        return ""
    shown = ", ".join(found.names)
    if found.beside_images:
        raise UserError(
            f"the annotations were written by another tool: {found.kind.tool}",
            where=path,
            found=shown,
            expected=f"a format that is read: {', '.join(FORMATS)}",
            hint=f"{found.kind.advice}; or use --format folder or images, to ignore them",
        )
    return f"; {shown} is {found.kind}"


def _near_misses_note(near: Sequence[str]) -> str:
    """Format the near misses, for the line that says why no format was found."""
    return "; near misses:" + "".join(f"\n    {line}" for line in near[:_MAX_NEAR]) if near else ""


@dataclass(frozen=True)
class Audit:
    """The result of checking a source.

    Attributes:
        source: What was read.
        settings: The settings it was read with.
        rows: One for every input file (``Collector.rows``), in the reader's order.
        findings: The results; JSON values only.
    """

    source: Source
    settings: IngestSettings
    rows: list[Row]
    findings: dict[str, Any]


def audit(
    settings: IngestSettings, seed: int, why: str = "", progress: Progress | None = None, workers: int | None = None
) -> Audit:
    """Read and check a whole source; a bad file never ends it early.

    Args:
        settings: What and how, as for an ingest.
        seed: The run's seed, which synthetic data sets need.
        why: Why this format was chosen, for the report.
        progress: Called from time to time with (files read, total or ``None``).
        workers: Decoding processes, ``None``: one for each core.

    Raises:
        UserError: The source as a whole cannot be read.
    """
    how = Decoding(settings.image_size, settings.limits, settings.near_duplicates is not None, resize=settings.resize)
    with shared_scans():
        source = open_source(settings)
        collector = collect(source, settings, seed, how, progress, workers)
    source, kept = select_images(source, settings, collector)
    return evaluate(source, settings, collector, kept, why)


def evaluate(
    source: Source, settings: IngestSettings, collector: Collector, kept: Sequence[Row], why: str = ""
) -> Audit:
    """Compute the findings about a collected source, after ``Collector.select_images`` and before any split.

    Args:
        source: The opened source.
        settings: The settings.
        collector: What was collected.
        kept: The rows of the images that stay.
        why: Why this format was chosen.
    """
    rows = collector.rows
    bad = sum(row["reason"] in COUNTED_BAD for row in rows)
    images = sum(map(is_unlabelled_only, rows))
    share = bad / (bad + len(kept) + images) if bad else 0.0
    problem = None
    if not (images and settings.source == IMAGES_ONLY and share <= settings.max_bad_share):
        problem = _problem(source, settings, collector, list(kept))
    labels = Counter(label for row in kept for label in row["labels"] or ())
    statuses = Counter(row["status"] for row in rows)
    unlabelled = [row["path"] for row in rows if row["labels"] is None and row["width"]]
    findings = {
        "path": source.where,
        "format": settings.source,
        "why": why,
        "usable": problem is None,
        "problem": None if problem is None else str(problem),
        "counts": {"status": {name: statuses[name] for name in STATUSES}, "reason": reason_counts(rows)},
        "images": len(kept),
        "bad": bad,
        "bad_share": share,
        "max_bad_share": settings.max_bad_share,
        "negatives": sum(row["labels"] == [] for row in kept),
        "unlabelled": len(unlabelled),
        "unlabelled_kept": sum(row["labels"] is None for row in kept),
        "unlabelled_sites": dict(sorted(Counter(row["site"] for row in kept if row["labels"] is None).items())),
        "labels": {name: labels[name] for name in source.classes or sorted(labels)},
        "unknown_labels": {name: len(paths) for name, paths in sorted(collector.unknown.items())},
        "unknown_lines": describe_unknown_labels(collector.unknown, source.classes or []),
        "aliases": dict(sorted(collector.alias_counts.items())),
        "sites": dict(sorted(Counter(row["site"] for row in kept).items())),
        "splits": dict(sorted(Counter(row["split"] for row in kept if row["split"]).items())),
        "sizes": _sizes(rows),
        "repeated": repeated(rows, kept, settings),
    }
    return Audit(source, settings, rows, findings)


def _problem(source: Source, settings: IngestSettings, collector: Collector, kept: list[Row]) -> UserError | None:
    """Return the error with which an ingest would refuse the source; ``None`` if it would not."""
    try:
        refuse_unusable(collector, kept, settings, source)
    except UserError as error:
        return error
    return None


def _sizes(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return smallest, median and largest width and height in pixels, with the files that have them."""
    seen = [row for row in rows if row["width"]]
    found: dict[str, dict[str, Any]] = {}
    for side in ("width", "height") if seen else ():
        least, most = min(seen, key=lambda row: row[side]), max(seen, key=lambda row: row[side])
        median = statistics.median_low(row[side] for row in seen)
        found[side] = {
            "min": least[side], "median": median, "max": most[side], "smallest": least["path"], "largest": most["path"]
        }  # fmt: skip
    return found


def repeated(rows: Sequence[Row], kept: Sequence[Row], settings: IngestSettings) -> list[dict[str, Any]]:
    """Return groups of duplicates: equal bytes among all images, equal or similar pixels among the kept ones.

    Returns:
        ``kind`` (``bytes``, ``pixels`` or ``near``), ``paths``, the ``sites`` and source's ``splits`` that hold them,
        ``labels`` as the different label sets: more than one is a contradiction. Groups across sites or splits come
        first.
    """
    groups = [("bytes", some) for some in _equal([row for row in rows if row["width"]], "sha256")]
    groups += [("pixels", some) for some in _equal(kept, "pixels")]
    if settings.near_duplicates is not None:
        from tasks.data.decoding.near_duplicates import near_pairs

        near: dict[int, list[Row]] = {}
        for first, other in near_pairs([row["phash"] for row in kept], settings.near_duplicates):
            near.setdefault(first, [kept[first]]).append(kept[other])
        # Images with equal pixels are listed as such.
        groups += [("near", some) for some in near.values() if len({row["pixels"] for row in some}) > 1]
    found = [
        {
            "kind": kind,
            "paths": [row["path"] for row in some],
            "sites": sorted({row["site"] for row in some}),
            "splits": sorted({row["split"] for row in some if row["split"]}),
            "labels": sorted({", ".join(row["labels"]) for row in some if row["labels"] is not None}),
        }
        for kind, some in groups
    ]
    return sorted(found, key=lambda group: -(len(group["sites"]) > 1) - 2 * (len(group["splits"]) > 1))


def _equal(rows: Sequence[Row], name: str) -> list[list[Row]]:
    """Return groups of two or more rows with the same value, in order of appearance."""
    by_value: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row[name]:
            by_value[row[name]].append(row)
    return [some for some in by_value.values() if len(some) > 1]
