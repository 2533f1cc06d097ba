"""PASCAL VOC: one XML file per image, in any tree, paired by file name.

Labels are the names of an image's objects; boxes are read only to count invalid ones. The split lists in
``ImageSets/Main`` are read if they exist.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.data.formats.shared.annotation import AnnotationError
from tasks.data.formats.shared.foreign_formats import foreign_file
from tasks.data.formats.shared.paired_samples import make_pair_row
from tasks.data.formats.shared.pairing import count_note, describe_image_names, names_beside_images, pair, unpaired_rows
from tasks.data.formats.shared.tree import NO_SITE, Entry, Tree, make_file_row, scan, unclassified_rows
from tasks.data.formats.voc.xml_file import parse_annotation
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.source.sample import RawSample
from tasks.data.text.annotation_encoding import shared_encodings
from tasks.data.text.equivalent_names import fold_name, path_parts
from tasks.data.text.read_text import Encodings, TextError, decode_text

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "JPEGImages/NAME.jpg with Annotations/NAME.xml, or any folders in which image and XML share the name"
KIND = "folder"
_SPLITS = ("train", "val", "test")
_OF_CLASS = (*_SPLITS, "trainval")
_MAX_INSPECTED = 3  # files that are read only to report them


class Settings(Section):
    """How a VOC tree is read."""

    use_image_sets: bool = Field(
        True, description="Read ImageSets/Main/{train,val,test}.txt; ingest.split.scheme: given then follows them."
    )
    several_annotations: Literal["refuse", "join"] = Field(
        "refuse", description="An image with several XML files: refuse it, or join their labels."
    )
    difficult: Literal["count", "ignore"] = Field(
        "count",
        description="Objects marked difficult: count their labels like any other, or ignore them (as in C-Tran's and "
        "FedLGT's VOC 2007).",
    )
    ignored: Literal["ask", "count", "leave_out"] = Field(
        "ask",
        description="Objects marked ignore: whether their label counts; ask: an image whose labels depend on it is "
        "unusable. Deleted objects never count, occluded and truncated ones do.",
    )


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> None:
    """Return ``None``: VOC declares no labels; those that are found count."""
    return


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise XML files with the names of images."""
    files = [name for name in names if name.lower().endswith(".xml")]
    both = len(names_beside_images(names, ".xml"))
    return f"{both} XML files with the names of images" if both and 2 * both >= len(files) else ""


def near_misses(root: Path, names: Sequence[str]) -> list[str]:
    """Report the first VOC annotation whose image is missing."""
    files = [name for name in names if name.lower().endswith(".xml")]
    paired = set(names_beside_images(names, ".xml"))
    lonely = [name for name in files if name not in paired]
    for name in lonely[:_MAX_INSPECTED]:
        try:
            parse_annotation((root / name).read_bytes())
        except (OSError, AnnotationError):
            continue
        images = describe_image_names(names)
        return [f"{name} is a VOC annotation, but no image has its name{count_note(lonely, files)}; {images}"]
    return []


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, an image before its annotation, pairs in name order.

    Raises:
        UserError: The site rule does not fit the tree, a name is in two split lists, or the
            annotations' encoding is unclear.
    """
    tree = scan(root, source, (".xml",))
    _refuse_class_lists(tree, root)
    splits = _Splits(tree, options.use_image_sets, Encodings(source.encoding))
    encodings = shared_encodings((entry.path for entry in tree.annotations), source.encoding)
    yield from unclassified_rows(tree, splits.used)
    yield from splits.rows
    parse = partial(
        parse_annotation, difficult=options.difficult == "count", encodings=encodings, ignored=options.ignored
    )
    for group in pair(tree):
        enough = len(group.annotations) == 1 or (group.annotations and options.several_annotations == "join")
        if enough and len(group.images) == 1 and group.images[0].site != NO_SITE:
            yield make_pair_row(group, parse, splits.split_for(group.images[0]))
        elif not group.images:
            kind = foreign_file(group.annotations[0].path)
            yield from unpaired_rows(replace(group, hint=f"it is {kind}") if kind else group)
        else:
            yield from unpaired_rows(group)


def _refuse_class_lists(tree: Tree, root: Path) -> None:
    """Refuse a tree with labels in one list per class (ImageSets/Main/cat_train.txt, 1 or -1) and in no XML."""
    lists = [
        entry.name
        for entry in tree.others
        if PurePosixPath(entry.name).parts[-3:-1] == ("ImageSets", "Main")
        and entry.stem.rpartition("_")[2] in _OF_CLASS
    ]
    if tree.annotations or not lists:
        return
    raise UserError(
        "the labels are in one list per class, which is not read, and there is no XML file",
        where=root,
        expected=LAYOUT,
        found=", ".join(lists[:3]) + (f" and {len(lists) - 3} more" if len(lists) > 3 else ""),
        hint="convert them to a table with a row per image and a column of 1 and 0 per class, for ingest.source=table",
    )


class _Splits:
    """The lists of ``ImageSets/Main``: which split each image belongs to, and the lists' own manifest rows."""

    def __init__(self, tree: Tree, use: bool, encodings: Encodings) -> None:
        self.rows: list[RawSample] = []
        self.used: set[str] = set()
        self._encodings = encodings
        self._scopes: dict[str, dict[str, str]] = {}  # folder above ImageSets -> stem -> split
        self._near: dict[str, set[str]] = defaultdict(set)  # folded stem -> the images' stems
        for image in tree.images:
            self._near[fold_name(image.stem)].add(image.stem)
        for entry in tree.others if use else ():
            *_, split = PurePosixPath(entry.name).with_suffix("").parts
            if PurePosixPath(entry.name).parts[-3:-1] != ("ImageSets", "Main") or split not in _SPLITS:
                continue
            try:
                names = self._read(entry, split)
            except (OSError, TextError) as error:
                raise UserError("cannot read a split list", where=entry.path, found=error) from error
            self.used.add(entry.name)
            missing = [name for name in names if name not in self._near.get(fold_name(name), ())]
            detail = f"{len(names)} names" + (f", {len(missing)} without an image: " if missing else "")
            self.rows.append(make_file_row(entry, "ok", "split_list", detail + ", ".join(missing[:5])))

    def _read(self, entry: Entry, split: str) -> list[str]:
        scope = self._scopes.setdefault(str(PurePosixPath(entry.name).parents[2]), {})
        text, _ = decode_text(entry.path.read_bytes(), entry.path, self._encodings)
        names = [self._meant(_stem(line)) for line in text.splitlines() if line.strip()]
        for name in names:
            if scope.setdefault(name, split) != split:
                raise UserError(
                    "an image is in two split lists", where=entry.path, found=f"{name}: {scope[name]} and {split}"
                )
        return names

    def _meant(self, stem: str) -> str:
        """Return the stem of the listed image: as written, else the only equivalent one."""
        near = self._near.get(fold_name(stem), set())
        return next(iter(near)) if len(near) == 1 else stem

    def split_for(self, image: Entry) -> str | None:
        """Return the split of an image, from the nearest lists above it."""
        for parent in PurePosixPath(image.name).parents:
            if str(parent) in self._scopes:
                return self._scopes[str(parent)].get(image.stem)
        return None


def _stem(listed: str) -> str:
    """Return the stem that a list means: some lists hold a suffix or a folder; a dot in a bare name is no suffix."""
    name = PurePosixPath(path_parts(listed)[-1])
    return unicodedata.normalize("NFC", name.stem if name.suffix.lower() in SUFFIXES else name.name)
