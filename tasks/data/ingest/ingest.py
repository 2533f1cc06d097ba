"""Ingest: from a source to one clean data set, with a manifest of every input file."""

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import UserError
from models.files import replacing_folder
from tasks.core.json_files import read_json, write_json
from tasks.core.locks import locked
from tasks.core.records import VERSION
from tasks.data.dataset import (
    CLASSES,
    IMAGES,
    SAMPLES,
    SPLITS,
    SUMMARY,
    content_digest,
    labels_digest,
    sample_lines,
    targets_of,
    write_samples,
)
from tasks.data.decoding.image_array import write_images
from tasks.data.decoding.parallel import Decoding
from tasks.data.formats.shared.tree import shared_scans
from tasks.data.ingest.audit import evaluate
from tasks.data.ingest.audit_report import AUDIT, write_audit
from tasks.data.ingest.collector import Collector, group_names
from tasks.data.ingest.dataset_kind import refuse_other_label_counts
from tasks.data.ingest.file_hashes import HashCache
from tasks.data.ingest.manifest import FILE as MANIFEST
from tasks.data.ingest.manifest import reason_counts, write_manifest
from tasks.data.ingest.reading import Progress, collect, open_source, refuse_unusable, select_images
from tasks.data.ingest.settings import IngestSettings, find_alias_problem
from tasks.data.ingest.sidecar_images import Pair, row_links
from tasks.data.ingest.source_state import FILE as CONTENTS
from tasks.data.ingest.source_state import (
    contents_after_read,
    contents_digest,
    describe_change,
    list_source,
    write_contents,
)
from tasks.data.ingest.unlabelled import place_unlabelled
from tasks.data.split import SplitSettings, given_split, stratified_split

__all__ = ["IngestSettings", "ingest"]


def ingest(
    settings: IngestSettings,
    out: Path,
    seed: int,
    progress: Progress | None = None,
    workers: int | None = None,
    hash_cache: Path | None = None,
) -> dict[str, Any]:
    """Read the source and write a data set; images are streamed, so memory does not grow with their number.

    The result replaces ``out`` in one step at the end. If the source is refused, an earlier data set stays, and the
    manifest of what was found is written to ``<out>.rejected-manifest.parquet``. Decoded chunks are cached in
    ``.<out>.parts`` until the data set is complete, so that a stopped ingest resumes. If another process makes the same
    data set meanwhile, this one waits and uses that.

    Args:
        settings: What is read, and how.
        out: The data set's folder.
        seed: The run's seed; determines the split and, for synthetic data sets, the images.
        progress: Called from time to time with (files read, total or ``None``).
        workers: Decoding processes, ``None``: one for each core.
        hash_cache: Folder that caches the files' hashes for later comparisons with the source.

    Returns:
        The contents of ``dataset.json``.

    Raises:
        UserError: The source is missing, empty or too bad, holds unknown labels, or ``out`` is something else.
    """
    out = Path(os.path.abspath(out))  # noqa: PTH100  keeps links
    with locked(out, "ingests") as waited:
        if waited and (made := _made_meanwhile(out, settings, seed, hash_cache)) is not None:
            return made
        with shared_scans():
            return _ingest(settings, out, seed, progress, workers, hash_cache)


def _made_meanwhile(out: Path, settings: IngestSettings, seed: int, hash_cache: Path | None) -> dict[str, Any] | None:
    """Return the summary if another process has just made this data set from the same source and settings."""
    if not (out / SUMMARY).is_file():
        return None
    summary: dict[str, Any] = read_json(out / SUMMARY, "fedscene data ingest")
    if (summary.get("settings"), summary.get("seed")) != (settings.model_dump(mode="json"), seed):
        return None
    listing = list_source(settings)
    same = listing.synthetic or not describe_change(out, listing, HashCache(hash_cache, listing.where))
    return summary if same else None


def _ingest(
    settings: IngestSettings,
    out: Path,
    seed: int,
    progress: Progress | None,
    workers: int | None,
    hash_cache: Path | None,
) -> dict[str, Any]:
    rejected, chunks = out.with_name(f"{out.name}.rejected-manifest.parquet"), out.with_name(f".{out.name}.parts")
    source = open_source(settings)
    listing = list_source(settings)  # before anything is read, so that later changes are noticed
    known = HashCache(hash_cache, listing.where)
    with replacing_folder(out, SUMMARY) as folder:
        chunks.mkdir(exist_ok=True)
        how = Decoding(
            settings.image_size, settings.limits, settings.near_duplicates is not None, chunks, settings.resize
        )
        collector = collect(source, settings, seed, how, progress, workers)
        source, kept = select_images(source, settings, collector)
        write_audit(evaluate(source, settings, collector, kept), folder / AUDIT)
        try:
            refuse_unusable(collector, kept, settings, source)
            refuse_other_label_counts(kept, settings)
            classes = source.classes or _found_classes(kept, settings.label_aliases, source.where)
            _group(kept, settings, collector.companions)
            _split(kept, classes, settings.split, seed, source.where, folder)
            kept = place_unlabelled(kept, settings.split.scheme)
        except UserError as error:
            write_manifest(collector.rows, rejected)
            raise _pointing_to(rejected, error) from error
        write_images(kept, chunks, folder / IMAGES, settings.image_size)
        contents = contents_after_read(listing, collector.rows, known)
        summary = _write(folder, collector, kept, classes, settings, seed, contents)
    known.save()
    rejected.unlink(missing_ok=True)
    shutil.rmtree(chunks)
    return summary


def _pointing_to(rejected: Path, error: UserError) -> UserError:
    hint = "; ".join(filter(None, (error.hint, f"every file is listed in {rejected}")))
    return UserError(error.what, where=error.where, expected=error.expected, found=error.found, hint=hint)


def _found_classes(kept: list[dict[str, Any]], aliases: dict[str, str], where: str) -> list[str]:
    classes = sorted({label for row in kept for label in row["labels"] or ()})
    problem = find_alias_problem(aliases, classes)
    if problem:
        raise UserError(problem, where="ingest.label_aliases", expected=f"{', '.join(classes)} (found in {where})")
    return classes


def _group(kept: list[dict[str, Any]], settings: IngestSettings, pairs: Sequence[Pair]) -> None:
    """Set ``group`` in the rows."""
    near = row_links(pairs, kept)
    if settings.near_duplicates is not None:
        from tasks.data.decoding.near_duplicates import near_pairs

        near += near_pairs([row["phash"] for row in kept], settings.near_duplicates)
    for row, name in zip(kept, group_names(kept, near), strict=True):
        row["group"] = name


def _split(
    kept: list[dict[str, Any]], classes: list[str], settings: SplitSettings, seed: int, where: str, folder: Path
) -> None:
    """Set ``split`` in the annotated rows.

    Sites are stratified like labels, so each site is split in the same shares. Unlabelled images have no say in it.
    """
    kept = [row for row in kept if row["labels"] is not None]
    groups = np.array([row["group"] or f"/{number}" for number, row in enumerate(kept)])
    if settings.scheme == "given":
        splits = given_split([row["split"] for row in kept], [row["path"] for row in kept], where)
        if settings.val and "val" not in splits:
            train = np.flatnonzero(splits == "train")
            fractions = {"train": 1 - settings.val, "val": settings.val, "test": 0.0}
            splits[train] = stratified_split(
                _strata([kept[n] for n in train], classes, folder), fractions, seed, groups[train]
            )
    else:
        fractions = {"train": 1 - settings.val - settings.test, "val": settings.val, "test": settings.test}
        splits = stratified_split(_strata(kept, classes, folder), fractions, seed, groups)
    for row, split in zip(kept, splits.tolist(), strict=True):
        row["split"] = split


def _strata(rows: list[dict[str, Any]], classes: list[str], folder: Path) -> np.ndarray:
    """Return what is stratified over, uint8 [n, C + sites]: every label, and every site."""
    _, site = np.unique([row["site"] for row in rows], return_inverse=True)
    columns = np.zeros((len(rows), site.max() + 1), dtype=np.uint8)
    columns[np.arange(len(rows)), site] = 1
    return np.hstack([targets_of([row["labels"] for row in rows], classes, folder), columns])


def _divided(kept: list[dict[str, Any]]) -> int:
    """Count the groups in more than one split: a leak, possible only if the source itself gives the splits."""
    splits: dict[str, set[str]] = defaultdict(set)
    for row in kept:
        splits[row["group"]].add(row["split"])
    return sum(len(found) > 1 for name, found in splits.items() if name)


def _write(
    folder: Path,
    collector: Collector,
    kept: list[dict[str, Any]],
    classes: list[str],
    settings: IngestSettings,
    seed: int,
    contents: dict[str, str],
) -> dict[str, Any]:
    """Write everything but the pixels; last the summary, which marks a data set."""
    samples = [row | {"sample_id": row["sha256"][:16], "source": row["path"]} for row in kept]
    assert len({sample["sample_id"] for sample in samples}) == len(samples), "two hashes share 64 bits"
    write_samples(samples, folder / SAMPLES)
    lines = sample_lines(samples)
    write_manifest(collector.rows, folder / MANIFEST)
    write_json(folder / CLASSES, classes)
    if contents:
        write_contents(contents, folder / CONTENTS)
    labels = Counter(label for row in kept for label in row["labels"] or ())
    unlabelled = [row for row in kept if row["labels"] is None]
    splits = Counter(row["split"] for row in kept)
    summary = {
        "version": VERSION,
        "digest": content_digest(folder / IMAGES, lines, classes),
        "labels_digest": labels_digest(lines, classes),
        "source": settings.source,
        "kind": settings.problem_kind,
        "image_size": settings.image_size,
        "images": len(kept),
        "negatives": sum(row["labels"] == [] for row in kept),
        "unlabelled": len(unlabelled),
        "unlabelled_sites": dict(sorted(Counter(row["site"] for row in unlabelled).items())),
        "sites": dict(sorted(Counter(row["site"] for row in kept).items())),
        "splits": {name: splits[name] for name in SPLITS},
        "labels": {name: labels[name] for name in classes},
        "aliases": dict(sorted(collector.alias_counts.items())),
        "files": len(collector.rows),
        "reasons": reason_counts(collector.rows),
        "unusable": reason_counts(row for row in collector.rows if row["status"] == "quarantined"),
        "groups": len({row["group"] for row in kept} - {""}),
        "groups_across_splits": _divided(kept),
        "seed": seed,
        "settings": settings.model_dump(mode="json"),
        "source_digest": contents_digest(contents) if contents else None,
    }
    write_json(folder / SUMMARY, summary)
    return summary
