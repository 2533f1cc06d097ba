"""An image and the annotation files that share its name, as rows of the manifest."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath

from tasks.data.formats.shared.annotation import Annotation, AnnotationError
from tasks.data.formats.shared.pairing import Group
from tasks.data.formats.shared.tree import ROLE_FOLDERS, Entry, make_file_row
from tasks.data.images.image import ImageFile
from tasks.data.source.sample import RawSample

Parser = Callable[[bytes], Annotation]


def make_pair_row(group: Group, parse: Parser, split: str | None) -> RawSample:
    """Return the row of the group's one image, with the rows of its annotations as sidecars.

    Args:
        group: One image and one or more annotations, whose labels are joined.
        parse: Reads an annotation file's bytes; raises ``AnnotationError`` when they cannot be used.
        split: The image's split, if the source names it.
    """
    (image,) = group.images
    parsed = [(entry, _parsed(entry, parse)) for entry in group.annotations]
    errors = [
        f"{entry.name}: {found.reason}" + (f" ({found.detail})" if found.detail else "")
        for entry, found in parsed
        if isinstance(found, AnnotationError)
    ]
    labels = dict.fromkeys(label for _, found in parsed if isinstance(found, Annotation) for label in found.labels)
    named = [entry for entry in group.annotations if group.inexact or _above(entry) != _above(image)]
    status, reason = ("fixed", "near_name") if group.inexact else ("ok", "")
    return RawSample(
        image.name,
        image.site,
        None if errors else tuple(labels),
        status="quarantined" if errors else status,
        reason="bad_annotation" if errors else reason,
        image=ImageFile(image.path),
        split=split,
        detail="; ".join(errors or [f"annotation: {entry.name}" for entry in named]),
        sidecars=tuple(_annotation_row(entry, found) for entry, found in parsed),
    )


def _annotation_row(entry: Entry, found: Annotation | AnnotationError) -> RawSample:
    if isinstance(found, AnnotationError):
        return make_file_row(entry, "quarantined", found.reason, found.detail)
    reason = "encoding" if found.encoding else "erased" if found.erased else "annotation"
    row = make_file_row(entry, "ok" if reason == "annotation" else "fixed", reason)
    erased = f"{found.erased} object(s) marked deleted, not counted" if found.erased else ""
    return replace(
        row, detail="; ".join(filter(None, (found.encoding, erased))), labels=found.labels, boxes=found.boxes
    )


def _parsed(entry: Entry, parse: Parser) -> Annotation | AnnotationError:
    try:
        return parse(entry.path.read_bytes())
    except OSError as error:
        return AnnotationError("unreadable", error.strerror or str(error))
    except AnnotationError as error:
        return error


def _above(entry: Entry) -> PurePosixPath:
    """Return the folders that matter; siblings such as ``images/train`` and ``labels/train`` count as one place."""
    parts = PurePosixPath(entry.name).parts[:-1]
    return PurePosixPath(*(part for part in parts if part.lower() not in ROLE_FOLDERS))
