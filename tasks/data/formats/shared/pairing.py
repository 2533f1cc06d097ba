"""Which image and which annotation files belong together, by their names.

``a.xml`` and ``a.jpg.xml`` are both annotations of ``a.jpg``. The ``filename`` inside an annotation is ignored.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tasks.data.formats.shared.tree import NO_SITE, ROLE_FOLDERS, Entry, Tree, make_file_row, make_image_row
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.source.sample import RawSample
from tasks.data.text.equivalent_names import fold_name


@dataclass(frozen=True)
class Group:
    """Images and annotations that share a name; a usable pair has one of each.

    Attributes:
        images: The images.
        annotations: The annotations.
        inexact: Whether their names differ in case, ``%20`` or the like, and no other file can be meant.
        hint: For an unpaired file: the files with nearly its name.
    """

    images: tuple[Entry, ...]
    annotations: tuple[Entry, ...]
    inexact: bool = False
    hint: str = ""


#: Begins the detail of files that may belong together.
NEARLY_NAMED = "nearly the same names: "
_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")  # Label Studio's name of an uploaded file
Place = Callable[[Entry], Hashable]
Component = tuple[list[Entry], list[Entry]]


def pair(tree: Tree) -> list[Group]:
    """Group images and annotations by name, in name order; each file is in exactly one group.

    First within a folder, where role folders such as ``Annotations`` and ``JPEGImages`` count as their parent. The
    remaining files are paired by name within their site, whatever their folders are called. The last step ignores
    case, ``%20``, a second image suffix and Label Studio's prefix, and pairs one image with one annotation.
    """
    groups: list[Group] = []
    images, annotations = list(tree.images), list(tree.annotations)
    for place in (_near, _site):
        found = _components(images, annotations, place, exact=True)
        groups += [Group(tuple(some), tuple(others)) for some, others in found]
        images, annotations = _without(images, annotations, found)
    hints: dict[str, str] = {}
    for place in (_near, _site):
        found = _components(images, annotations, place, exact=False)
        clear = [one for one in found if len(one[0]) == len(one[1]) == 1]
        groups += [Group(tuple(some), tuple(others), inexact=True) for some, others in clear]
        images, annotations = _without(images, annotations, clear)
        for some, others in found:
            names = [entry.name for entry in (*some, *others)]
            hints |= {name: f"{NEARLY_NAMED}{', '.join(names[:4])}" for name in names}
    groups += [Group((entry,), (), hint=hints.get(entry.name, "")) for entry in images]
    groups += [Group((), (entry,), hint=hints.get(entry.name, "")) for entry in annotations]
    return sorted(groups, key=lambda group: (group.images or group.annotations)[0].name)


def names_beside_images(names: Sequence[str], suffix: str) -> list[str]:
    """Return the names with this suffix, in any case, whose stem is that of an image."""
    keys: set[str] = set()
    for name in names:
        path = PurePosixPath(name)
        if path.suffix.lower() in SUFFIXES:
            keys |= {fold_name(path.stem), fold_name(path.name)}
    return [n for n in names if n.lower().endswith(suffix) and fold_name(PurePosixPath(n).stem) in keys]


def describe_image_names(names: Sequence[str]) -> str:
    """Return sample image names, for a message about names that do not match."""
    some = [PurePosixPath(name).name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    return f"images are named {', '.join(some[:3])}" if some else "there is no image"


def count_note(some: Sequence[str], of: Sequence[str]) -> str:
    """Say how many more files there are like the first."""
    return f" (as for {len(some)} of {len(of)} such files)" if len(some) > 1 else ""


def unpaired_rows(group: Group) -> Iterator[RawSample]:
    """Yield rows for what forms no pair: orphans of both kinds, ambiguous names, files outside every site."""
    names = ", ".join(entry.name for entry in group.images + group.annotations)
    if group.images and group.images[0].site == NO_SITE:
        reason, detail = "no_site", "ingest.site names no site for it"
    elif group.images and group.annotations:
        reason, detail = "ambiguous_pair", names
    else:
        reason, detail = "no_annotation", group.hint
    for entry in group.images:
        yield make_image_row(entry, reason, detail)
    for entry in group.annotations:
        if group.images:
            yield make_file_row(entry, "quarantined", "annotation_unused", reason)
        else:
            yield make_file_row(entry, "quarantined", "no_image", group.hint)


def _near(entry: Entry) -> Hashable:
    folders = PurePosixPath(unicodedata.normalize("NFC", entry.name)).parts[:-1]
    return tuple(part for part in folders if part.lower() not in ROLE_FOLDERS)


def _site(entry: Entry) -> Hashable:
    return entry.site


def _components(images: Sequence[Entry], annotations: Sequence[Entry], place: Place, exact: bool) -> list[Component]:
    """Connect images and annotations of equal names in equal places; each component has at least one of both."""
    by_key: dict[Hashable, list[int]] = defaultdict(list)
    for number, entry in enumerate(images):
        where = place(entry)
        for name in {entry.stem, _file_name(entry)}:
            by_key[where, name if exact else fold_name(name)].append(number)
    parent = list(range(len(images)))
    owner: list[tuple[Entry, int]] = []
    for entry in annotations:
        names = {entry.stem} if exact else _near_names(entry.stem)
        where = place(entry)
        numbers = sorted({number for name in names for number in by_key.get((where, name), ())})
        for number in numbers:
            parent[_root(parent, number)] = _root(parent, numbers[0])
        if numbers:
            owner.append((entry, numbers[0]))
    found: dict[int, Component] = {}
    for entry, number in owner:
        found.setdefault(_root(parent, number), ([], []))[1].append(entry)
    for number, entry in enumerate(images):
        if _root(parent, number) in found:
            found[_root(parent, number)][0].append(entry)
    return list(found.values())


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = number = parent[parent[number]]
    return number


def _without(
    images: Sequence[Entry], annotations: Sequence[Entry], found: Sequence[Component]
) -> tuple[list[Entry], list[Entry]]:
    used = {entry.name for some, others in found for entry in (*some, *others)}
    return [e for e in images if e.name not in used], [e for e in annotations if e.name not in used]


def _file_name(entry: Entry) -> str:
    return unicodedata.normalize("NFC", PurePosixPath(entry.name).name)


def _near_names(stem: str) -> set[str]:
    """Return what an annotation's image may be called: without an image suffix or Label Studio's prefix."""
    path = PurePosixPath(stem)
    bare = path.stem if path.suffix.lower() in SUFFIXES else stem
    return {fold_name(name) for name in (stem, bare, _UPLOADED.sub("", bare))}
