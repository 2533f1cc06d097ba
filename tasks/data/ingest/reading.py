"""Opens a source, collects every file of it, and refuses a source with too many unusable files."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from models.errors import UserError
from tasks.data.decoding.parallel import Decoding, decoded
from tasks.data.formats import Format, load_format
from tasks.data.formats.shared.path_resolver import NOT_LISTED
from tasks.data.formats.shared.tree import UNCLEAR_FOLDER
from tasks.data.images.image_kinds import NOT_READ
from tasks.data.ingest.collector import Collector, describe_unknown_labels
from tasks.data.ingest.manifest import COUNTED_BAD
from tasks.data.ingest.settings import IngestSettings, find_alias_problem
from tasks.data.ingest.sidecar_images import masks_hint, refuse_masks
from tasks.data.source.rules import compile_rule
from tasks.data.source.sample import RawSample

_LEFT_OUT = {"litter": "left by a NAS, a desktop or a tool", "excluded": "left out by ingest.include or ingest.exclude"}
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Source:
    """An opened source.

    Attributes:
        reader: The format's reader module.
        root: The folder or file.
        classes: Declared labels in their order; ``None``: those that are found count.
        where: The location, for error messages.
    """

    reader: Format
    root: Path
    classes: list[str] | None
    where: str

    def read(self, settings: IngestSettings, seed: int) -> Iterator[RawSample]:
        """Yield the source's files, images undecoded."""
        return self.reader.read(self.root, settings.format_options, settings, seed)


def open_source(settings: IngestSettings) -> Source:
    """Find the source that the settings name, and its labels.

    Raises:
        UserError: It is missing or cannot be read, or the aliases do not fit its labels.
    """
    reader, options = load_format(settings.source), settings.format_options
    root = _root(settings, reader)
    classes = settings.classes or reader.default_classes(root, options, settings)
    if classes is not None and (problem := find_alias_problem(settings.label_aliases, classes)):
        from_where = "ingest.classes" if settings.classes else root
        raise UserError(problem, where="ingest.label_aliases", expected=f"{', '.join(classes)} (from {from_where})")
    where = f"synthetic.set: {options.set}" if reader.KIND == "none" else str(root)
    return Source(reader, root, classes, where)


def _root(settings: IngestSettings, reader: Format) -> Path:
    if reader.KIND == "none":
        return Path()
    if settings.path is None:
        found = f"ingest.source is {settings.source}, but no path is set"
        raise UserError(found, where="ingest.path", expected=reader.LAYOUT)
    root = settings.path.expanduser()
    kinds = {"folder": root.is_dir(), "file": root.is_file()}
    if not (any(kinds.values()) if reader.KIND == "either" else kinds[reader.KIND]):
        kind = "file or folder" if reader.KIND == "either" else reader.KIND
        raise UserError(f"no such {kind}", where="ingest.path", found=root, expected=reader.LAYOUT)
    if not os.access(root, os.R_OK | (os.X_OK if root.is_dir() else 0)):
        raise UserError("the source cannot be read", where="ingest.path", found=root)
    return root


def collect(
    source: Source,
    settings: IngestSettings,
    seed: int,
    how: Decoding,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Collector:
    """Read the whole source and decode its images: every input file becomes a manifest row; nothing is decided yet.

    Raises:
        UserError: The source as a whole cannot be read.
    """
    group_of = compile_rule(settings.group, "ingest.group")
    collector = Collector(
        source.classes,
        settings.label_aliases,
        settings.keep_negatives,
        group_of,
        settings.companions,
        settings.unlabelled,
    )
    for number, (sample, result) in enumerate(decoded(source.read(settings, seed), how, workers), 1):
        collector.add(sample, result)
        if progress and number % 50 == 0:
            progress(len(collector.rows), None)
    if progress:
        progress(len(collector.rows), len(collector.rows))
    return collector


def select_images(
    source: Source, settings: IngestSettings, collector: Collector
) -> tuple[Source, list[dict[str, Any]]]:
    """Select the images that stay, and drop classes that only masks have from the source."""
    kept = collector.select_images()
    masks = {label for row in collector.rows if row["reason"] == "mask" for label in row["labels"] or ()}
    masks -= {label for row in collector.rows if row["reason"] != "mask" for label in row["labels"] or ()}
    if masks and source.classes is not None and settings.classes is None:
        source = replace(source, classes=[name for name in source.classes if name not in masks])
    return source, kept


def _hint(bad: list[dict[str, Any]], settings: IngestSettings, collector: Collector) -> str:
    """Suggest what to do about unusable inputs; if most are images that no list names, there is a setting."""
    unlisted = sum(row["reason"] == "no_annotation" and row["detail"].startswith(NOT_LISTED) for row in bad)
    if 2 * unlisted <= len(bad):
        without = sum(row["reason"] == "no_annotation" for row in bad)
        more = "; ingest.unlabelled=keep makes images without an annotation unlabelled training images, skip omits them"
        return _unusable_hint(bad, collector) + (more if 2 * without > len(bad) else "")
    return (
        f"{unlisted} images are in no list: set ingest.unlisted=ignore to use listed images only, "
        f"or ingest.path to the {'table' if settings.source == 'table' else 'JSON'} itself"
    )


def refuse_unusable(collector: Collector, kept: list[dict[str, Any]], settings: IngestSettings, source: Source) -> None:
    """Refuse a source that holds nothing to use, or too much that cannot be used.

    Raises:
        UserError: No images, too many bad inputs, unknown labels, or no labels at all.
    """
    rows = collector.rows
    if settings.companions == "ask":
        refuse_masks(collector.companions, rows, source.where)
    bad = [row for row in rows if row["reason"] in COUNTED_BAD]
    if collector.unknown:
        assert source.classes is not None
        raise UserError(
            f"{len(collector.unknown)} unknown label(s)",
            where=source.where,
            expected=", ".join(source.classes),
            found="".join(f"\n    {line}" for line in describe_unknown_labels(collector.unknown, source.classes)),
            hint="correct the annotations, or name the labels in ingest.classes or ingest.label_aliases",
        )
    images = sum(map(is_unlabelled_only, rows))
    if not kept and not images and all(row["reason"] == "no_image" for row in bad):
        negatives = sum(row["reason"] == "negative" for row in rows)
        found = _others(rows) + (f", {negatives} images without a label" if negatives else "")
        raise UserError("no images found", where=source.where, expected=source.reader.LAYOUT, found=found)
    unclear = [row["detail"] for row in bad if row["detail"].startswith(UNCLEAR_FOLDER)]
    if unclear:
        what, _, hint = unclear[0].partition(": ")
        raise UserError(what, where=source.where, found=f"{len(unclear)} images", hint=hint.partition("; also")[0])
    share = len(bad) / (len(bad) + len(kept) + images)
    if share > settings.max_bad_share:
        first = "".join(f"\n    {row['path']}: {row['reason']} {row['detail']}".rstrip() for row in bad[:8])
        raise UserError(
            f"{len(bad)} of {len(bad) + len(kept) + images} inputs cannot be used",
            where=source.where,
            expected=f"a share of at most ingest.max_bad_share = {settings.max_bad_share:g}",
            found=f"{share:.3f}, the first:{first}",
            hint=_hint(bad, settings, collector),
        )
    if images:
        hint = "fedscene data check inspects them; training needs labels (docs/your-images.md)"
        raise UserError("the images have no labels", where=source.where, found=f"{images} images", hint=hint)
    if not any(row["labels"] for row in kept):
        raise UserError("no image has a label", where=source.where, found=_without_labels(rows, kept))


def is_unlabelled_only(row: dict[str, Any]) -> bool:
    """Check whether a row is a sound image without labels that is not part of the data set."""
    sound = row["width"] > 0 and row["status"] in ("ok", "fixed")
    return row["labels"] is None and row["slot"] is None and sound


def _without_labels(rows: list[dict[str, Any]], kept: list[dict[str, Any]]) -> str:
    """Say how many images have no object, and what became of the others."""
    reasons = Counter(row["reason"] for row in rows if row["width"] and row["slot"] is None and row["reason"])
    shown = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(5))
    return f"{len(kept)} images without an object" + (f"; not used: {shown}" if shown else "")


def _others(rows: list[dict[str, Any]]) -> str:
    """Count the files that are no images, with their suffixes, most frequent first."""
    reasons = Counter(row["reason"] for row in rows)
    suffixes = Counter(
        PurePosixPath(row["path"]).suffix.lower() or "without a suffix" for row in rows if row["reason"] == "other"
    )
    shown = ", ".join(f"{count} {suffix}" for suffix, count in suffixes.most_common(6))
    more = [f"{reasons[name]} {text}" for name, text in _LEFT_OUT.items() if reasons[name]]
    return f"{len(rows)} other files" + (f" ({'; '.join([*filter(None, [shown]), *more])})" if shown or more else "")


def _unusable_hint(bad: list[dict[str, Any]], collector: Collector) -> str:
    """Suggest what to do about the inputs that cannot be used."""
    general = "fix or remove the files, or raise ingest.max_bad_share"
    paths = {row["path"] for row in bad}
    twice = [pair for pair in collector.companions if pair.row["path"] in paths]
    for pairs, what in (
        ([p for p in twice if p.mask], "masks of photographs"),
        (twice, "second copies of photographs"),
    ):
        if pairs:
            return f"{len(pairs)} of them look like {what}: {masks_hint(pairs, collector.rows)}; or {general}"
    unread = [row for row in bad if NOT_READ in row["detail"]]
    if not unread:
        return general
    suffixes = Counter(PurePosixPath(row["path"]).suffix.lower() or "no suffix" for row in unread)
    shown = ", ".join(f"{count} {suffix}" for suffix, count in suffixes.most_common(6))
    return f"{shown} in a format that is not read ({unread[0]['detail']}); or {general}"
