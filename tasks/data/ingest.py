"""Ingest: from whatever a source holds to one clean data set, with a manifest of every input file."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from models.base_settings import Section
from models.errors import UserError
from tasks.data.collector import Collector, ImageWriter, normal_label
from tasks.data.dataset import (
    CLASSES,
    IMAGES,
    SAMPLES,
    SPLITS,
    SUMMARY,
    content_digest,
    labels_digest,
    replacing,
    targets_of,
    write_json,
    write_samples,
)
from tasks.data.decode import DEFAULT_BACKGROUND, DEFAULT_MAX_PIXELS, DEFAULT_MIN_SIDE
from tasks.data.formats import reader
from tasks.data.formats.voc import VocSettings
from tasks.data.manifest import FILE as MANIFEST
from tasks.data.manifest import reason_counts, write_manifest
from tasks.data.rendered.settings import RenderedSettings
from tasks.data.split import SplitSettings, given_split, stratified_split

Channel = Annotated[int, Field(ge=0, le=255)]


class IngestSettings(Section):
    """Where images come from and how they become a data set."""

    source: Literal["rendered", "voc"] = Field("rendered", description="Kind of source; its own section follows.")
    image_size: int = Field(64, ge=32, description="Side in pixels of the stored images; sides are squashed to it.")
    classes: list[str] | None = Field(
        None, description="The labels in their order; null: those of the drawn set, or for files all that are found."
    )
    label_aliases: dict[str, str] = Field(
        {}, description="Label as found -> declared label, for misspelt annotations; each use is counted."
    )
    keep_negatives: bool = Field(True, description="Keep images that are annotated as holding no label.")
    max_bad_share: float = Field(
        0.02, ge=0, le=1, description="Largest share of unusable inputs (an image with its annotation is one)."
    )
    min_side: int = Field(DEFAULT_MIN_SIDE, ge=1, description="Shortest side in pixels of an image that is used.")
    max_pixels: int = Field(
        DEFAULT_MAX_PIXELS, ge=1, le=2 * DEFAULT_MAX_PIXELS, description="Most pixels of an image that is decoded."
    )
    background: tuple[Channel, Channel, Channel] = Field(
        DEFAULT_BACKGROUND, description="RGB colour behind transparent parts."
    )
    rendered: RenderedSettings = Field(RenderedSettings.model_validate({}), description="The drawn image set.")
    voc: VocSettings = Field(VocSettings.model_validate({}), description="The PASCAL VOC tree.")
    split: SplitSettings = Field(SplitSettings.model_validate({}), description="Train, validation and test.")

    @field_validator("classes")
    @classmethod
    def _different_labels(cls, value: list[str] | None) -> list[str] | None:
        if value is None:
            return None
        names = [normal_label(name) for name in value]
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if not names or not all(names) or repeated:
            raise ValueError(
                f"needs one or more different, non-empty labels; repeated: {', '.join(repeated) or 'none'}"
            )
        return names

    @field_validator("label_aliases")
    @classmethod
    def _normal_labels(cls, value: dict[str, str]) -> dict[str, str]:
        return {normal_label(found): normal_label(meant) for found, meant in value.items()}

    @model_validator(mode="after")
    def _aliases_point_to_labels(self) -> Self:
        chains = sorted(set(self.label_aliases) & set(self.label_aliases.values()))
        if chains:
            raise ValueError(f"label_aliases: {', '.join(chains)} is both an alias and what an alias points to")
        if self.classes is not None:
            problem = alias_problem(self.label_aliases, self.classes)
            if problem:
                raise ValueError(problem)
        return self


def alias_problem(aliases: dict[str, str], classes: list[str]) -> str | None:
    """What is wrong with an alias table beside declared labels, or ``None``."""
    lost = sorted(f"{found} -> {meant}" for found, meant in aliases.items() if meant not in classes)
    if lost:
        return f"label_aliases must point to a declared label: {', '.join(lost)}"
    hidden = sorted(set(aliases) & set(classes))
    return f"label_aliases: {', '.join(hidden)} is a declared label itself" if hidden else None


def ingest(
    settings: IngestSettings, out: Path, seed: int, progress: Callable[[int, int | None], None] | None = None
) -> dict[str, Any]:
    """Read the source and write a data set; images stream through, memory does not grow with their number.

    The result takes the place of ``out`` in one step at the end. When the source is refused, an earlier data set
    stays, and the manifest of what was found is left at ``<out>.rejected-manifest.parquet``.

    Args:
        settings: What and how.
        out: The data set's folder.
        seed: The run's seed; decides the split and, for drawn sets, the pictures.
        progress: Called with (files read, total or ``None``) now and then.

    Returns:
        What ``dataset.json`` holds.

    Raises:
        UserError: The source is missing, empty or too bad, holds unknown labels, or ``out`` is something else.
    """
    out = Path(os.path.abspath(out))  # noqa: PTH100  keeps links
    module = reader(settings.source)
    classes = settings.classes or module.default_classes(settings)
    if classes is not None and (problem := alias_problem(settings.label_aliases, classes)):
        raise UserError(problem, where="ingest.label_aliases", expected=", ".join(classes))
    rejected = out.with_name(f"{out.name}.rejected-manifest.parquet")
    with replacing(out, SUMMARY) as folder:
        with ImageWriter(folder / IMAGES, settings.image_size) as writer:
            collector = Collector(writer, settings.image_size, classes, settings.label_aliases, settings.keep_negatives)
            for number, sample in enumerate(module.read(settings, seed), 1):
                collector.add(sample)
                if progress and number % 50 == 0:
                    progress(number, None)
            if progress:
                progress(len(collector.rows), len(collector.rows))
            kept = collector.settle()
            try:
                collector.check(kept, settings.max_bad_share, module.where(settings), module.LAYOUT)
                classes = classes or _found_classes(kept, settings.label_aliases)
                _split(kept, classes, settings.split, seed, module.where(settings), folder)
            except UserError as error:
                write_manifest(collector.rows, rejected)
                raise _pointing_to(rejected, error) from error
            writer.finish([row["index"] for row in kept])
        summary = _write(folder, collector, kept, classes, settings, seed)
    rejected.unlink(missing_ok=True)
    return summary


def _pointing_to(rejected: Path, error: UserError) -> UserError:
    hint = "; ".join(filter(None, (error.hint, f"every file is listed in {rejected}")))
    return UserError(error.what, where=error.where, expected=error.expected, found=error.found, hint=hint)


def _found_classes(kept: list[dict[str, Any]], aliases: dict[str, str]) -> list[str]:
    classes = sorted({label for row in kept for label in row["labels"]})
    problem = alias_problem(aliases, classes)
    if problem:
        raise UserError(problem, where="ingest.label_aliases", expected=", ".join(classes))
    return classes


def _split(
    kept: list[dict[str, Any]], classes: list[str], settings: SplitSettings, seed: int, where: str, folder: Path
) -> None:
    """Set ``split`` in the rows. Sites count as labels, so each site is divided in the same shares too."""
    if settings.scheme == "given":
        splits = given_split([row["split"] for row in kept], [row["path"] for row in kept], where)
    else:
        sites = sorted({row["site"] for row in kept})
        columns = np.array([[row["site"] == site for site in sites] for row in kept], dtype=np.uint8)
        targets = np.hstack([targets_of([row["labels"] for row in kept], classes, folder), columns])
        fractions = {"train": 1 - settings.val - settings.test, "val": settings.val, "test": settings.test}
        # Other bytes with the same pixels (a picture saved again) must not lie in train and test.
        splits = stratified_split(targets, fractions, seed, np.array([row["pixels"] for row in kept]))
    for row, split in zip(kept, splits.tolist(), strict=True):
        row["split"] = split


def _write(
    folder: Path,
    collector: Collector,
    kept: list[dict[str, Any]],
    classes: list[str],
    settings: IngestSettings,
    seed: int,
) -> dict[str, Any]:
    """Write everything but the pixels."""
    samples = [row | {"sample_id": row["sha256"][:16], "source": row["path"]} for row in kept]
    assert len({sample["sample_id"] for sample in samples}) == len(samples), "two hashes share 64 bits"
    write_samples(samples, folder / SAMPLES)
    write_manifest(collector.rows, folder / MANIFEST)
    write_json(classes, folder / CLASSES)
    labels = Counter(label for row in kept for label in row["labels"])
    splits = Counter(row["split"] for row in kept)
    summary = {
        "digest": content_digest(folder / IMAGES, samples, classes),
        "labels_digest": labels_digest(samples, classes),
        "source": settings.source,
        "image_size": settings.image_size,
        "images": len(kept),
        "negatives": sum(not row["labels"] for row in kept),
        "sites": dict(sorted(Counter(row["site"] for row in kept).items())),
        "splits": {name: splits[name] for name in SPLITS},
        "labels": {name: labels[name] for name in classes},
        "aliases": dict(sorted(collector.alias_counts.items())),
        "files": len(collector.rows),
        "reasons": reason_counts(collector.rows),
        "seed": seed,
        "settings": settings.model_dump(mode="json"),
    }
    write_json(summary, folder / SUMMARY)
    return summary
