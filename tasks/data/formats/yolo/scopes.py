"""Assigns each YOLO label file the names file it was made with, when a tree holds several.

Files that contradict each other apply only to their own folders: labelImg writes a ``classes.txt`` into each folder of
labels, in the order in which that folder's classes occurred.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath

from models.errors import UserError
from tasks.data.formats.shared.tree import ROLE_FOLDERS
from tasks.data.formats.yolo.names import NamesFile

_MAX_SHOWN = 6
Folder = tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """The names of the class indices, the files that hold them, and the broken files (name -> fault).

    Attributes:
        files: All that name indices.
        broken: Files that fail to.
        scopes: Folder -> class index -> name, for the label files in or below it.
    """

    files: tuple[NamesFile, ...]
    broken: Mapping[str, str]
    scopes: Mapping[Folder, Mapping[int, str]]

    def names_for(self, label_file: str) -> Mapping[int, str]:
        """Return the names for a label file.

        Raises:
            UserError: Files contradict each other, and none is in or above its folder.
        """
        folder = _folder(label_file)
        for length in range(len(folder), -1, -1):
            if folder[:length] in self.scopes:
                return self.scopes[folder[:length]]
        raise UserError(
            "no names file applies to this label file",
            where=label_file,
            expected="one file of names in or above its folder",
            found=", ".join(file.name for file in self.files[:_MAX_SHOWN]) + ", which differ",
            hint="put the file it was made with next to it, or set ingest.yolo.names to one for all",
        )

    def labels(self) -> list[str]:
        """Return all names, those of the first file in the order of their indices.

        Raises:
            UserError: Not all files have the same names, in whatever order.
        """
        some = [tuple(dict.fromkeys(by_index.values())) for by_index in self.scopes.values()]
        every = list(dict.fromkeys(name for names in some for name in names))
        for folder, names in zip(self.scopes, some, strict=True):
            lacking = [name for name in every if name not in names]
            if lacking:
                raise UserError(
                    "the files that name the class indices have different names",
                    where="/".join(folder) or ".",
                    expected=", ".join(every),
                    found=f"{', '.join(names)}; without {', '.join(lacking)}",
                    hint="name the labels in ingest.classes if every folder was searched for all of them, "
                    "else exclude folders or labels",
                )
        return every


def resolve_scopes(root: Path, files: Sequence[NamesFile], broken: Mapping[str, str]) -> Names:
    """Decide which files count where.

    Files that agree on every shared index form one list; else each applies to its own folder.

    Raises:
        UserError: Two that contradict each other apply to the same folder.
    """
    clashes = [(one, other) for one, other in combinations(files, 2) if _differing(one, other)]
    if not clashes:
        merged = {index: name for file in files for index, name in file.by_index.items()}
        return Names(tuple(files), broken, {(): dict(sorted(merged.items()))})
    for one, other in clashes:
        above, below = sorted((_folder(one.name), _folder(other.name)), key=len)
        if below[: len(above)] == above:
            raise UserError(
                "two files name the class indices differently",
                where=root,
                found=f"\n    {one.name} and {other.name}: {_describe_differences(one, other)}",
                hint="if all labels were made with one of them, set ingest.yolo.names to it; "
                "else remove the other one, or move it to the label files it belongs to",
            )
    scopes: dict[Folder, dict[int, str]] = defaultdict(dict)
    for file in sorted(files, key=lambda file: len(_folder(file.name))):
        scopes[_folder(file.name)].update(file.by_index)
    return Names(tuple(files), broken, {folder: dict(sorted(scopes[folder].items())) for folder in sorted(scopes)})


def _folder(name: str) -> Folder:
    """Return the folders of a file without role folders such as ``labels``."""
    return tuple(part for part in PurePosixPath(name).parts[:-1] if part.lower() not in ROLE_FOLDERS)


def _differing(one: NamesFile, other: NamesFile) -> list[int]:
    return sorted(
        index for index in one.by_index.keys() & other.by_index.keys() if one.by_index[index] != other.by_index[index]
    )


def _describe_differences(one: NamesFile, other: NamesFile) -> str:
    indices = _differing(one, other)
    some = [f"index {index} is {one.by_index[index]} or {other.by_index[index]}" for index in indices[:_MAX_SHOWN]]
    return ", ".join(some) + (f", and {len(indices) - _MAX_SHOWN} more" if len(indices) > _MAX_SHOWN else "")
