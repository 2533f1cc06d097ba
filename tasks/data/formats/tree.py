"""A tree of images and annotations: what is in it, and what belongs together.

Names are paths relative to the tree's root with POSIX separators. Pairing goes by the file's stem; the ``filename``
inside an annotation plays no part.
"""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from models.errors import UserError
from tasks.data.decode import SUFFIXES

#: Folder names that say what is in a folder, not whose it is; compared in lower case.
ROLE_FOLDERS = frozenset(
    {"annotations", "annotation", "xml", "xmls", "labels", "label", "jpegimages", "images", "image", "imgs", "img"}
)
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})
NO_SITE = ""
ONE_SITE = "all"


@dataclass(frozen=True)
class Entry:
    """A file of the tree: where it is, its relative name, and its site (``NO_SITE`` outside every site)."""

    path: Path
    name: str
    site: str

    @property
    def stem(self) -> str:
        """The file name without its last suffix, in Unicode's composed form."""
        return unicodedata.normalize("NFC", PurePosixPath(self.name).stem)


@dataclass
class Tree:
    """The files of a tree by kind, each list in name order; ``ignored`` holds (entry, reason)."""

    images: list[Entry] = field(default_factory=list)
    annotations: list[Entry] = field(default_factory=list)
    lists: list[Entry] = field(default_factory=list)
    ignored: list[tuple[Entry, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """Images and annotations that share a name; a usable pair has one of each."""

    images: tuple[Entry, ...]
    annotations: tuple[Entry, ...]


def scan(root: Path, site_from: str) -> Tree:
    """Sort every file below ``root`` by kind.

    Args:
        root: The tree's root.
        site_from: ``none`` (all files are of one site) or ``folder`` (the first folder level names the site).

    Raises:
        UserError: ``folder`` is asked for, but the first level holds folders such as ``Annotations``.
    """
    tree = Tree()
    for path, name in sorted(_files(root), key=lambda item: item[1]):
        parts = PurePosixPath(name).parts
        site = ONE_SITE if site_from == "none" else (parts[0] if len(parts) > 1 else NO_SITE)
        entry = Entry(path, name, unicodedata.normalize("NFC", site))
        suffix = path.suffix.lower()
        if any(part.startswith(".") for part in parts) or parts[-1].lower() in _SYSTEM_FILES:
            tree.ignored.append((entry, "hidden"))
        elif suffix in SUFFIXES:
            tree.images.append(entry)
        elif suffix == ".xml":
            tree.annotations.append(entry)
        elif suffix == ".txt" and len(parts) >= 3 and parts[-3:-1] == ("ImageSets", "Main"):
            tree.lists.append(entry)
        else:
            tree.ignored.append((entry, "other"))
    if site_from == "folder":
        _refuse_role_folders(root, tree)
    return tree


def pair(tree: Tree) -> list[Group]:
    """Group images and annotations by name, in name order; each file is in exactly one group.

    First within a folder, where folders such as ``Annotations`` and ``JPEGImages`` are as good as their parent. What
    is left is then paired by stem alone, within its site, so that any two folder names will do.
    """
    groups, images, annotations = _match(tree.images, tree.annotations, _near_key)
    more, images, annotations = _match(images, annotations, lambda entry: (entry.site, entry.stem))
    groups += more
    groups += [Group((entry,), ()) for entry in images]
    groups += [Group((), (entry,)) for entry in annotations]
    return sorted(groups, key=lambda group: (group.images or group.annotations)[0].name)


def _near_key(entry: Entry) -> tuple[str, ...]:
    folders = PurePosixPath(unicodedata.normalize("NFC", entry.name)).parts[:-1]
    return (*(part for part in folders if part.lower() not in ROLE_FOLDERS), entry.stem)


def _match(
    images: list[Entry], annotations: list[Entry], key: Callable[[Entry], tuple[str, ...]]
) -> tuple[list[Group], list[Entry], list[Entry]]:
    """Groups that have both kinds under one key, and the files that are left."""
    by_key: dict[tuple[str, ...], tuple[list[Entry], list[Entry]]] = defaultdict(lambda: ([], []))
    for kind, entries in enumerate((images, annotations)):
        for entry in entries:
            by_key[key(entry)][kind].append(entry)
    groups = [Group(tuple(some), tuple(others)) for some, others in by_key.values() if some and others]
    left = [pair_ for pair_ in by_key.values() if not (pair_[0] and pair_[1])]
    return groups, [entry for some, _ in left for entry in some], [entry for _, some in left for entry in some]


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    """Every file below ``root``; linked folders are followed, each real folder once."""
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for file in files:
            path = Path(folder, file)
            # Names that are not UTF-8 (GBK out of an old zip file) cannot go into Parquet as they are.
            raw = os.fsencode(path.relative_to(root).as_posix())
            yield path, raw.decode("utf-8", "backslashreplace")


def _refuse_role_folders(root: Path, tree: Tree) -> None:
    found = {entry.site for entry in tree.images + tree.annotations if entry.site.lower() in ROLE_FOLDERS}
    if found:
        raise UserError(
            "the first folder level does not name sites",
            where=root,
            expected="one folder per site, each with its images and annotations",
            found=", ".join(sorted(found)),
            hint="set ingest.voc.site_from to none, or move the files into a folder per site",
        )
