"""YOLO text: one file of lines "index numbers..." per image, and a file that names the indices.

Labels are the names of the indices; four numbers are a box, more are an outline or key points. An empty file is a
negative, a missing one leaves its image unlabelled.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.data.formats.shared.annotation import Annotation, AnnotationError
from tasks.data.formats.shared.foreign_formats import foreign_text
from tasks.data.formats.shared.paired_samples import make_pair_row
from tasks.data.formats.shared.pairing import (
    Group,
    count_note,
    describe_image_names,
    names_beside_images,
    pair,
    unpaired_rows,
)
from tasks.data.formats.shared.tree import (
    NO_SITE,
    Entry,
    Tree,
    make_file_row,
    scan,
    split_from_folders,
    unclassified_rows,
)
from tasks.data.formats.yolo.names import find_names
from tasks.data.formats.yolo.scopes import Names, resolve_scopes
from tasks.data.formats.yolo.splits import Splits
from tasks.data.source.sample import Boxes, RawSample
from tasks.data.text.read_text import Encodings, TextError, decode_text

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "images/NAME.jpg with labels/NAME.txt (or both in one folder), and data.yaml, obj.names or classes.txt"
KIND = "folder"
_LABEL_FOLDERS = frozenset({"labels", "label", "annotations", "annotation"})
_MAX_INSPECTED = 20  # text files that are read only to report them
_BOX = 4  # numbers of a box: centre and size, as shares of the image's sides


class Settings(Section):
    """How the class indices are named."""

    names: Path | None = Field(
        None,
        description="The file that names the class indices of all label files: YAML with names, or one name per line; "
        "null: the YAML, *.names or classes.txt found below ingest.path; if they differ, each applies to its own "
        "folder. Splits that the YAML names are read too.",
    )


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> list[str]:
    """Return the names in the order of their indices; several files are joined by name.

    Raises:
        UserError: There are none, or files disagree.
    """
    tree = scan(root, source, (".txt",))
    return _names(root, options, tree, source.encoding).labels()


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise text files of label lines with the names of images."""
    pairs = names_beside_images(names, ".txt")
    good = pairs and all(_like_labels(root / name) for name in pairs[:5])
    return f"{len(pairs)} text files of label lines with the names of images" if good else ""


def near_misses(root: Path, names: Sequence[str]) -> list[str]:
    """Report the first label file without an image, and the first image's text file without label lines."""
    pairs, lines = names_beside_images(names, ".txt"), []
    paired = set(pairs)
    lonely = [name for name in names if name.lower().endswith(".txt") and name not in paired]
    some = [name for name in lonely[:_MAX_INSPECTED] if _like_labels(root / name, empty=False)]
    if some:
        more = count_note(lonely, [*lonely, *pairs])
        lines.append(
            f"{some[0]} holds YOLO label lines, but no image has its name{more}; {describe_image_names(names)}"
        )
    other = next((name for name in pairs[:5] if not _like_labels(root / name)), None)
    if other is not None:
        line = _first_line(root / other)
        lines.append(f"{other} has the name of an image, but its first line is not 'index x y width height': {line!r}")
    return lines


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, an image before its label file, pairs in name order.

    Raises:
        UserError: Nothing names the class indices, the site rule does not fit, or split lists contradict each other.
    """
    tree = scan(root, source, (".txt",))
    names = _names(root, options, tree, source.encoding)
    splits = Splits(tree, names.files, Encodings(source.encoding))
    special = splits.lists | {
        entry.name: row
        for entry in tree.annotations + tree.others
        if entry.name not in splits.lists and (row := _names_row(entry, names)) is not None
    }
    tree.annotations = [entry for entry in tree.annotations if entry.name not in special]
    groups = _groups(tree)
    seen: set[int] = set()
    yield from unclassified_rows(tree, special)
    yield from special.values()
    for group in groups:
        if len(group.images) == len(group.annotations) == 1 and group.images[0].site != NO_SITE:
            parse = partial(parse_labels, names=names.names_for(group.annotations[0].name), seen=seen)
            yield make_pair_row(group, parse, splits.split_for(group.images[0]))
        else:
            yield from unpaired_rows(group)
    _refuse_counting_from_one(root, names, seen)


def _refuse_counting_from_one(root: Path, names: Names, seen: set[int]) -> None:
    """Refuse indices from 1 to the number of names: each would get the name of the next one."""
    for by_index in names.scopes.values():
        if seen and min(seen) == 1 and max(seen) == len(by_index) and set(by_index) == set(range(len(by_index))):
            first, *_ = by_index.values()
            raise UserError(
                "the class indices seem to start at 1",
                where=root,
                expected=f"indices from 0 to {len(by_index) - 1}, as there are {len(by_index)} names",
                found=f"{len(by_index)}, and never 0",
                hint=f"set ingest.yolo.names to a YAML with their names, such as names: {{1: {first}, ...}}",
            )


def parse_labels(data: bytes, names: Mapping[int, str], seen: set[int] | None = None) -> Annotation:
    """Read a label file.

    Args:
        data: Its bytes.
        names: Class index -> name.
        seen: Receives the indices of the file.

    Raises:
        AnnotationError: It is not text, or a line is not "index numbers..." or has an index without a name.
    """
    try:
        text, encoding = decode_text(data, ask=False)
    except TextError as error:
        raise AnnotationError("bad_text", str(error)) from error
    labels: list[str] = []
    sides: list[tuple[float, float, float, float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        index, *values = line.split() or [""]
        if not index:
            continue
        kind = foreign_text(line) if number == 1 else None
        if kind is not None:
            raise AnnotationError("bad_text", f"it is {kind}")
        if not (index.isascii() and index.isdigit()):
            raise AnnotationError("bad_text", f"line {number}: {index[:40]!r} is not a class index")
        if seen is not None:
            seen.add(int(index[:9]))
        if int(index[:9]) not in names or len(index) > 9:
            raise AnnotationError(
                "bad_text", f"line {number}: index {index[:40]} has no name, the last is {max(names)}"
            )
        try:
            numbers = [float(value) for value in values]
        except ValueError as error:
            raise AnnotationError("bad_text", f"line {number}: {error}") from error
        if len(numbers) < _BOX:
            raise AnnotationError("bad_text", f"line {number}: {len(numbers)} numbers after the index, a box has 4")
        labels.append(names[int(index)])
        if len(numbers) <= _BOX + 1:  # a fifth is the confidence of a detector
            x, y, width, height = numbers[:_BOX]
            sides.append((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    return Annotation(tuple(dict.fromkeys(labels)), Boxes(tuple(sides), relative=True), encoding)


def _names(root: Path, options: Settings, tree: Tree, encoding: str | None) -> Names:
    files, broken = find_names(root, tree.annotations + tree.others, options.names, Encodings(encoding))
    if options.names is not None:
        return Names(tuple(files), broken, {(): files[0].by_index})
    return resolve_scopes(root, files, broken)


def _names_row(entry: Entry, names: Names) -> RawSample | None:
    """Return the row of a file that names the indices or fails to; ``None`` for all others."""
    if entry.name in names.broken:
        return make_file_row(entry, "quarantined", "bad_text", names.broken[entry.name])
    for file in names.files:
        if file.name == entry.name:
            status, reason = ("fixed", "encoding") if file.encoding else ("ok", "metadata")
            notes = (file.encoding, f"{len(file.by_index)} names", file.note)
            return make_file_row(entry, status, reason, "; ".join(filter(None, notes)))
    return None


def _groups(tree: Tree) -> list[Group]:
    """Return pairs and unpaired files; text files that are no labels (a README) become other files."""
    groups = [part for group in pair(tree) for part in _within_a_split(group)]
    paired = {_parent(entry) for group in groups if group.images for entry in group.annotations}
    kept = []
    for group in groups:
        (*_, last) = group.annotations or (None,)
        if group.images or last is None or (_in_label_folder(last, paired) and _like_labels(last.path)):
            kept.append(group)
        else:
            tree.others.extend(group.annotations)
    return kept


def _within_a_split(group: Group) -> list[Group]:
    """Split a group whose image and labels are in folders of different splits."""
    splits = [
        {split_from_folders(entry.name) for entry in entries} - {None} for entries in (group.images, group.annotations)
    ]
    if splits[0] and splits[1] and not splits[0] & splits[1]:
        return [Group(group.images, ()), *(Group((), (entry,)) for entry in group.annotations)]
    return [group]


def _parent(entry: Entry) -> PurePosixPath:
    return PurePosixPath(entry.name).parent


def _in_label_folder(entry: Entry, paired: set[PurePosixPath]) -> bool:
    folder = _parent(entry)
    return folder in paired or any(part.lower() in _LABEL_FOLDERS for part in folder.parts)


def _first_line(path: Path) -> str:
    try:
        return decode_text(path.read_bytes(), ask=False)[0].lstrip().partition("\n")[0].strip()[:60]
    except (OSError, TextError):
        return ""


def _like_labels(path: Path, empty: bool = True) -> bool:
    """Check whether a text file begins with an index and a number, or is ``empty``."""
    try:
        text, _ = decode_text(path.read_bytes(), ask=False)
    except (OSError, TextError):
        return False
    words = text.split(maxsplit=2)[:2]
    try:
        return (empty and not words) or (len(words) > 1 and words[0].isdigit() and float(words[1]) == float(words[1]))
    except ValueError:
        return False
