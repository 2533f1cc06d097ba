"""One folder for each class: an image's single label is the name of its folder.

Folders that name a split (``train``, ``valid`` ...) or a site, and role folders such as ``images``, are skipped; the
first other folder of a path is the class, and folders below it do not matter. If ingest.unlabelled is not refuse,
folders called ``unlabelled`` or the like hold images without a label, as does the place beside the class folders.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.core.problem_kind import Kind
from tasks.data.formats.shared.system_files import find_litter
from tasks.data.formats.shared.tree import (
    NO_SITE,
    ROLE_FOLDERS,
    UNCLEAR_FOLDER,
    Entry,
    make_image_row,
    scan,
    split_from_folders,
    unclassified_rows,
)
from tasks.data.formats.shared.walk import is_own_output
from tasks.data.images.image import ImageFile
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.source.rules import NameRule
from tasks.data.source.sample import RawSample
from tasks.data.text.read_text import normalize

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "CLASS/NAME.jpg, also below folders such as train and test, or below a folder for each site"
KIND = "folder"
#: Folders of images without a label, in lower case.
UNLABELLED = frozenset({"unlabelled", "unlabeled", "unannotated"})


class Settings(Section):
    """Which folder names the class."""

    level: int | None = Field(
        None,
        ge=1,
        description="Level of the class folders, 1 is the first below ingest.path; null: the first that is neither a "
        "split (train, val, test), nor called images or the like, nor the level of ingest.site.",
    )


@dataclass(frozen=True)
class _Level:
    """The level of the class in a path: fixed, or the first folder that names nothing else."""

    fixed: int | None
    site: int | None

    @classmethod
    def from_settings(cls, options: Settings, site: NameRule) -> "_Level":
        return cls(options.level, site.level if site.rule == "folder" else None)

    def within(self, folders: Sequence[str]) -> int | None:
        """Return the position of the class folder in a path, ``None`` if there is none."""
        if self.fixed is not None:
            return self.fixed - 1 if len(folders) >= self.fixed else None
        for number, folder in enumerate(folders):
            says_other = folder.lower() in ROLE_FOLDERS or split_from_folders(f"{folder}/image") is not None
            if not says_other and number + 1 != self.site:
                return number
        return None


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> list[str] | None:
    """Return the class folders in name order: those with images, and the empty ones."""
    tree, level = scan(root, source), _Level.from_settings(options, source.site)
    filled = {_class_path(entry.name, level) for entry in tree.images if not _is_unlabelled(entry.name, source)}
    used = filled | {_class_path(entry.name, level) for entry in tree.others + tree.excluded + tree.redundant}
    empty = (path for path in _class_folders(root, level) if not _is_unlabelled("/".join((*path, "")), source))
    found = (filled | {path for path in empty if path not in used}) - {()}
    return sorted({normalize(path[-1]) for path in found}) or None


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise two or more folders that divide the images."""
    images = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    paths = [_class_path(name, _Level(None, None)) for name in images]
    unclear = {folder for folder, _ in _doubtful(images)}
    classes = sorted({path[-1] for path in paths if path})
    inside = sum(bool(path) or tuple(name.split("/")[:-1]) in unclear for path, name in zip(paths, images, strict=True))
    domains = classes and all(re.fullmatch(r"(train|val|test)[AB]", name) for name in classes)  # CycleGAN's
    if len(classes) + len(unclear) < 2 or 2 * inside < len(paths) or domains:
        return ""
    shown = ", ".join(classes[:6]) + (", ..." if len(classes) > 6 else "")
    passed = dict.fromkeys(part for path in paths for part in path[:-1] if split_from_folders(f"{part}/image"))
    splits = f" in folders taken for splits ({', '.join(list(passed)[:6])})" if passed else ""
    return f"{len(classes)} folders of images{splits}, taken for classes: {shown}"


def near_misses(root: Path, names: Sequence[str]) -> list[str]:
    """Report the one folder that holds all images, if it is no class or the only one."""
    images = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    paths = {_class_path(name, _Level(None, None)) for name in images}
    if len(paths) != 1 or () in paths:
        return []
    (path,) = paths
    inner = sorted({rest[0] for name in images if (rest := name.split("/")[len(path) : -1])})
    if len(inner) > 1:
        return [
            f"{'/'.join(path)} holds folders of images ({', '.join(inner[:6])}): pass it as PATH if they are classes"
        ]
    return [f"{'/'.join(path)} is the only folder of images: --format folder takes it for the one class"]


def problem_kind(options: Settings) -> Kind:
    """Return "single_label"."""
    return "single_label"


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, images in name order.

    Raises:
        UserError: The site rule does not fit the tree, or one folder holds all the class folders.
    """
    tree, level = scan(root, source), _Level.from_settings(options, source.site)
    unlabelled = [entry for entry in tree.images if _is_unlabelled(entry.name, source)]
    tree.images = [entry for entry in tree.images if not _is_unlabelled(entry.name, source)]
    _refuse_one_folder_around_all(root, tree.images, level)
    _refuse_two_levels(root, tree.images, level)
    unclear = _unclear([entry.name for entry in tree.images], level)
    yield from unclassified_rows(tree)
    yield from (_unlabelled_row(entry) for entry in unlabelled)
    for entry in tree.images:
        path = _class_path(entry.name, level)
        if entry.site == NO_SITE:
            yield make_image_row(entry, "no_site", "ingest.site names no site for it")
        elif not path:
            parents = (tuple(entry.name.split("/")[:end]) for end in range(1, entry.name.count("/") + 1))
            detail = next((unclear[folder] for folder in parents if folder in unclear), "it is in no class folder")
            yield make_image_row(entry, "no_annotation", detail)
        else:
            yield RawSample(entry.name, entry.site, (path[-1],), image=ImageFile(entry.path), split=_split(entry, path))


def _is_unlabelled(name: str, source: "SourceSettings") -> bool:
    """Check whether a folder above a file says that its images have no label, where such images are asked for."""
    return source.unlabelled != "refuse" and any(part.lower() in UNLABELLED for part in name.split("/")[:-1])


def _unlabelled_row(entry: Entry) -> RawSample:
    if entry.site == NO_SITE:
        return make_image_row(entry, "no_site", "ingest.site names no site for it")
    return make_image_row(entry, "no_annotation", "in a folder of unlabelled images")


def _class_path(name: str, level: _Level) -> tuple[str, ...]:
    """Return the folders of a file down to its class folder, ``()`` if it is in none."""
    return _class_folder(name.rpartition("/")[0], level)


@lru_cache(maxsize=4096)
def _class_folder(path: str, level: _Level) -> tuple[str, ...]:
    folders = tuple(path.split("/")) if path else ()
    number = level.within(folders)
    return () if number is None else folders[: number + 1]


def _split(entry: Entry, path: tuple[str, ...]) -> str | None:
    """Return the split that a folder names; the class folder names none, even if it is called ``test``."""
    rest = entry.name.split("/")[len(path) :]
    return split_from_folders("/".join((*path[:-1], *rest)))


def _class_folders(root: Path, level: _Level) -> Iterator[tuple[str, ...]]:
    """Yield the folders at the level of class folders."""
    for folder, folders, files in os.walk(root):
        if is_own_output(files):
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and not find_litter((name, ""))]
        relative = os.fsencode(Path(folder).relative_to(root).as_posix()).decode("utf-8", "backslashreplace")
        parts = PurePosixPath(relative).parts
        if parts and level.within(parts) == len(parts) - 1:
            folders.clear()
            yield parts


def _doubtful(names: Sequence[str], level: _Level | None = None) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return folders named like a split or like ``images`` that hold images directly, next to class folders.

    They may be classes themselves, such as ``train`` among vehicles or ``label`` on packages.
    """
    level = level or _Level(None, None)
    classes: dict[tuple[str, ...], tuple[str, ...]] = {}  # folder above -> the first class folder in it
    others: dict[tuple[str, ...], None] = {}
    for folders in dict.fromkeys(tuple(name.split("/")[:-1]) for name in names):
        number = level.within(folders)
        if number is not None:
            classes.setdefault(folders[:number], folders[: number + 1])
        else:
            others |= dict.fromkeys(folders[: end + 1] for end in range(len(folders)) if end + 1 != level.site)
    return [(folder, classes[folder[:-1]]) for folder in others if folder[:-1] in classes]


def _unclear(names: Sequence[str], level: _Level) -> dict[tuple[str, ...], str]:
    """Return folder -> what is unclear about it, and the setting that decides."""
    found = {}
    for folder, class_folder in _doubtful(names, level) if level.fixed is None else ():
        what = "a split" if split_from_folders(f"{folder[-1]}/image") else "a folder of images"
        found[folder] = (
            f"{UNCLEAR_FOLDER}{'/'.join(folder)} is a class or {what}, as it is next to {'/'.join(class_folder)}: "
            f"ingest.folder.level={len(folder)} makes it a class; if it is {what}, put the class folders into it, or "
            f"leave it out: ingest.exclude='[\"{folder[-1]}\"]'"
        )
    return found


def _refuse_one_folder_around_all(root: Path, images: Sequence[Entry], level: _Level) -> None:
    inside: dict[str, set[str]] = defaultdict(set)  # class -> folders below it
    for entry in images:
        path = _class_path(entry.name, level)
        rest = entry.name.split("/")[len(path) : -1]
        if path:
            inside[path[-1]].update(rest[:1])
    if level.fixed is None and len(inside) == 1:
        ((name, folders),) = inside.items()
        if len(folders) > 1:
            raise UserError(
                "one folder holds all the others, so there would be only one class",
                where=root / name,
                expected=LAYOUT,
                found=f"{name} with {', '.join(sorted(folders)[:6])}" + (", ..." if len(folders) > 6 else ""),
                hint="set ingest.path to that folder, or ingest.folder.level to the level of the class folders",
            )


def _refuse_two_levels(root: Path, images: Sequence[Entry], level: _Level) -> None:
    """Refuse ``plant A/crack`` and ``plant B/crack``: either folder may name the class."""
    if level.fixed is not None or level.site is not None:
        return
    inside: dict[str, set[str]] = defaultdict(set)  # class -> the first folder below it that is no split or role folder
    undivided, depths = 0, set[int]()
    for entry in images:
        path = _class_path(entry.name, level)
        depths |= {len(path)} if path else set()
        rest = entry.name.split("/")[len(path) : -1]
        inner = _Level(None, None).within(rest)
        if path and (inner is None or not any(map(str.isalpha, rest[inner]))):
            undivided += 1
        elif path and inner is not None:
            inside[path[-1]].add(rest[inner])
    counts = Counter(name for names in inside.values() for name in names)
    shared = sorted(name for name, count in counts.items() if count > 1)
    parts = len({_without_number(name) for name in counts}) == 1 < len({_without_number(name) for name in inside})
    if not undivided and len(inside) > 1 and 2 * len(shared) >= len(counts) and not parts:
        outer = ", ".join(sorted(inside)[:6]) + (", ..." if len(inside) > 6 else "")
        raise UserError(
            "two folder levels may be the classes",
            where=root,
            expected=LAYOUT,
            found=f"{outer}; and below several of them {', '.join(shared[:6])}" + (", ..." if shared[6:] else ""),
            hint=f"if the outer ones are sites, set ingest.site.rule=folder and ingest.site.level={min(depths)}; else "
            f"ingest.folder.level={min(depths)} makes them the classes, {min(depths) + 1} the inner ones",
        )


def _without_number(folder: str) -> str:
    """Return ``session`` for ``session12``: folders that are merely numbered are no classes."""
    return re.sub(r"[\W_]*\d+$", "", folder).casefold()
