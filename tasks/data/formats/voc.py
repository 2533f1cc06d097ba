"""PASCAL VOC: one XML file per image, in the classic tree or in any tree where names pair them."""

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.data.decode import SUFFIXES, Decoded, DecodeError, decode
from tasks.data.formats.tree import NO_SITE, Entry, Group, Tree, pair, scan
from tasks.data.formats.voc_xml import Annotation, AnnotationError, decode_text, parse_annotation
from tasks.data.sample import RawSample

if TYPE_CHECKING:
    from tasks.data.ingest import IngestSettings

LAYOUT = "JPEGImages/NAME.jpg with Annotations/NAME.xml, or any folders in which image and XML share the name"
_SPLITS = ("train", "val", "test")


class VocSettings(Section):
    """Where a VOC tree is and how it is read."""

    root: Path | None = Field(None, description="Folder that holds the tree; needed with ingest.source: voc.")
    site_from: Literal["none", "folder"] = Field(
        "none", description="none: one site; folder: the first folder level below root names the site."
    )
    use_image_sets: bool = Field(
        True, description="Read ImageSets/Main/{train,val,test}.txt; ingest.split.scheme: given then follows them."
    )
    several_annotations: Literal["refuse", "join"] = Field(
        "refuse", description="An image with several XML files: refuse it, or join their labels."
    )


def default_classes(settings: "IngestSettings") -> None:
    """VOC declares no labels; those that are found count."""
    return


def where(settings: "IngestSettings") -> str:
    """The tree's root."""
    return str(settings.voc.root)


def read(settings: "IngestSettings", seed: int) -> Iterator[RawSample]:
    """Every file of the tree once, an image before its annotation, pairs in name order.

    Args:
        settings: ``voc`` says where, ``max_pixels``, ``min_side`` and ``background`` how images are decoded.
        seed: Not used, nothing is drawn here.

    Raises:
        UserError: The root is missing, ``site_from`` does not fit the tree, or a name stands in two split lists.
    """
    root = _root(settings.voc)
    tree = scan(root, settings.voc.site_from)
    for entry, reason in tree.ignored:
        yield _row(entry, "ignored", reason)
    splits = _Splits(tree, settings.voc.use_image_sets)
    yield from splits.rows
    for group in pair(tree):
        enough = len(group.annotations) == 1 or (group.annotations and settings.voc.several_annotations == "join")
        if enough and len(group.images) == 1 and group.images[0].site != NO_SITE:
            yield from _pair(group, settings, splits)
        else:
            yield from _misfits(group)


def _root(settings: VocSettings) -> Path:
    if settings.root is None:
        raise UserError("ingest.source is voc, but no folder is named", where="ingest.voc.root", expected=LAYOUT)
    root = settings.root.expanduser()
    if not root.is_dir():
        raise UserError("there is no such folder", where="ingest.voc.root", found=root, expected=LAYOUT)
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError("the folder cannot be read", where="ingest.voc.root", found=root)
    return root


def _pair(group: Group, settings: "IngestSettings", splits: "_Splits") -> Iterator[RawSample]:
    """The row of the group's one image, then those of its annotations."""
    (image,), decoded = group.images, None
    parsed = [_parse(entry) for entry in group.annotations]
    errors = [
        f"{entry.name}: {result.reason}"
        for entry, result in zip(group.annotations, parsed, strict=True)
        if isinstance(result, AnnotationError)
    ]
    labels = dict.fromkeys(label for result in parsed if isinstance(result, Annotation) for label in result.labels)
    row = RawSample(image.name, image.site, None if errors else tuple(labels), split=splits.of(image))
    try:
        decoded = decode(image.path, settings.max_pixels, settings.min_side, settings.background)
    except DecodeError as error:
        row = replace(row, width=error.width, height=error.height, sha256=error.sha256)
        yield replace(row, status="quarantined", reason=error.reason, detail=error.detail)
    else:
        row = replace(row, width=decoded.width, height=decoded.height, sha256=decoded.sha256)
        if errors:
            yield replace(row, status="quarantined", reason="bad_annotation", detail="; ".join(errors))
        else:
            far = [f"annotation: {entry.name}" for entry in group.annotations if _parent(entry) != _parent(image)]
            detail = "; ".join(filter(None, (decoded.detail, *far)))
            status = "fixed" if decoded.reason else "ok"
            yield replace(row, status=status, reason=decoded.reason, image=decoded.image, detail=detail)
    for entry, result in zip(group.annotations, parsed, strict=True):
        if isinstance(result, AnnotationError):
            yield _row(entry, "quarantined", result.reason, result.detail)
        else:
            yield _annotation_row(entry, result, decoded)


def _annotation_row(entry: Entry, parsed: Annotation, decoded: Decoded | None) -> RawSample:
    fixes, remarks = (["encoding"] if parsed.encoding else []), ([parsed.encoding] if parsed.encoding else [])
    if decoded:
        actual = (decoded.width, decoded.height)
        swapped = decoded.turned and parsed.size == actual[::-1] != actual
        odd = parsed.odd_boxes(*(actual[::-1] if swapped else actual))
        if odd:
            fixes.append("odd_box")
            remarks.append(f"{odd} odd box(es)")
        if swapped:
            remarks.append("boxes are those of the picture before it was turned upright")
        elif parsed.size and parsed.size != actual:
            remarks.append(f"declares {parsed.size[0]:g} x {parsed.size[1]:g}, the image has {actual[0]} x {actual[1]}")
    row = _row(entry, "fixed" if fixes else "ok", fixes[0] if fixes else "annotation", "; ".join(remarks))
    return replace(row, labels=parsed.labels)


def _parse(entry: Entry) -> Annotation | AnnotationError:
    try:
        return parse_annotation(entry.path.read_bytes())
    except OSError as error:
        return AnnotationError("unreadable", error.strerror or str(error))
    except AnnotationError as error:
        return error


def _misfits(group: Group) -> Iterator[RawSample]:
    """Rows for what does not make a pair: orphans of both kinds, ambiguous names, files outside every site."""
    names = ", ".join(entry.name for entry in group.images + group.annotations)
    if group.images and group.images[0].site == NO_SITE:
        reason, detail = "no_site", "not in a folder of a site"
    elif group.images and group.annotations:
        reason, detail = "ambiguous_pair", names
    else:
        reason, detail = "no_annotation", ""
    for entry in group.images:
        yield _row(entry, "quarantined", reason, detail)
    for entry in group.annotations:
        if group.images:
            yield _row(entry, "quarantined", "annotation_unused", reason)
        else:
            yield _row(entry, "quarantined", "no_image")


class _Splits:
    """The lists of ``ImageSets/Main``: which split each image belongs to, and the lists' own manifest rows."""

    def __init__(self, tree: Tree, use: bool) -> None:
        self.rows: list[RawSample] = []
        self._scopes: dict[str, dict[str, str]] = {}  # folder above ImageSets -> stem -> split
        stems = {entry.stem for entry in tree.images}
        for entry in tree.lists:
            split = PurePosixPath(entry.name).stem
            if not use or split not in _SPLITS:
                self.rows.append(_row(entry, "ignored", "other"))
                continue
            try:
                names = self._read(entry, split)
            except (OSError, AnnotationError) as error:
                raise UserError("cannot read a split list", where=entry.path, found=error) from error
            missing = [name for name in names if name not in stems]
            detail = f"{len(names)} names" + (f", {len(missing)} without an image: " if missing else "")
            self.rows.append(_row(entry, "ok", "split_list", detail + ", ".join(missing[:5])))

    def _read(self, entry: Entry, split: str) -> list[str]:
        scope = self._scopes.setdefault(str(PurePosixPath(entry.name).parents[2]), {})
        text, _ = decode_text(entry.path.read_bytes())
        names = [_stem(line.strip()) for line in text.splitlines() if line.strip()]
        for name in names:
            if scope.setdefault(name, split) != split:
                raise UserError(
                    "an image stands in two split lists", where=entry.path, found=f"{name}: {scope[name]} and {split}"
                )
        return names

    def of(self, image: Entry) -> str | None:
        """The split of an image, from the nearest lists above it."""
        for parent in PurePosixPath(image.name).parents:
            if str(parent) in self._scopes:
                return self._scopes[str(parent)].get(image.stem)
        return None


def _stem(listed: str) -> str:
    """The stem that a list means: some write the suffix or a folder too; a dot inside a bare name is not a suffix."""
    name = PurePosixPath(listed)
    return unicodedata.normalize("NFC", name.stem if name.suffix.lower() in SUFFIXES else name.name)


def _parent(entry: Entry) -> PurePosixPath:
    """The folder, or the one above when image and annotation lie in sibling folders."""
    return PurePosixPath(entry.name).parent.parent


def _row(entry: Entry, status: str, reason: str, detail: str = "") -> RawSample:
    """A row without an image; the file is hashed where it can be read."""
    try:
        with entry.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        sha256, detail = "", "; ".join(filter(None, (detail, error.strerror or str(error))))
    return RawSample(entry.name, entry.site, None, status, reason, sha256=sha256, detail=detail)
