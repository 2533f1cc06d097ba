"""Assigns YOLO images to splits: by the YAML's folders and lists, by lists such as train.txt, by folder."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from models.errors import UserError
from tasks.data.formats.shared.path_resolver import PathResolver
from tasks.data.formats.shared.tree import Entry, Tree, make_file_row, split_from_folders
from tasks.data.formats.yolo.names import NamesFile
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.source.sample import RawSample
from tasks.data.text.equivalent_names import path_parts
from tasks.data.text.read_text import Encodings, TextError, decode_text

_SUFFIX = re.compile("|".join(re.escape(suffix) for suffix in sorted(SUFFIXES, key=len, reverse=True)), re.IGNORECASE)
_MAX_DEPTH = 60  # folders of a named path that are compared


class Splits:
    """Assigns images to splits by lists and folders.

    Args:
        tree: The tree, its text files as annotations.
        files: The YAML files.
        encodings: What is known of the lists' encoding.

    Attributes:
        lists: The text files that list the images of a split, and their manifest rows.

    Raises:
        UserError: A list cannot be read, or an image is in the lists of two splits.
    """

    def __init__(self, tree: Tree, files: Sequence[NamesFile], encodings: Encodings | None = None) -> None:
        self.lists: dict[str, RawSample] = {}
        self._listed: dict[str, str] = {}
        self._encodings = encodings
        self._folders: dict[str, str] = {}
        resolver = PathResolver(entry.name for entry in tree.images)
        texts = {entry.name: entry for entry in tree.annotations}
        folders = {str(parent) for entry in tree.images for parent in PurePosixPath(entry.name).parents}
        named: dict[str, set[str]] = defaultdict(set)
        for split, place in _places(files, folders | set(texts)):
            named[place].add(split)
        for entry in tree.annotations:
            split_ = split_from_folders(f"{entry.stem.lower()}/image")
            if split_ and entry.name not in named and _lists_images(entry):
                named[entry.name].add(split_)
        for place, splits in named.items():
            if place in texts:
                self._read(texts[place], splits, resolver)
            elif len(splits) == 1:
                self._folders[place] = next(iter(splits))

    def split_for(self, image: Entry) -> str | None:
        """Return the split of an image; a folder or list that the YAML names for several splits counts for none."""
        if image.name in self._listed:
            return self._listed[image.name]
        for parent in PurePosixPath(image.name).parents:
            if str(parent) in self._folders:
                return self._folders[str(parent)]
        return split_from_folders(image.name)

    def _read(self, entry: Entry, splits: set[str], resolver: PathResolver) -> None:
        try:
            names = _lines(entry, self._encodings, ask=True)
        except (OSError, TextError) as error:
            raise UserError("cannot read a split list", where=entry.path, found=error) from error
        split = next(iter(splits)) if len(splits) == 1 else None
        folder = str(PurePosixPath(entry.name).parent)
        missing = []
        for line in names:
            _refuse_glued(line, entry, folder, resolver)
            found = (
                resolver.by_full_path(line, (folder, ""))
                or resolver.by_name(line, split)
                or resolver.by_equivalent_name(line, (folder, ""), split)
            )
            if len(found) != 1:
                missing.append(line)
            elif split and self._listed.setdefault(found[0], split) != split:
                both = f"{found[0]}: {self._listed[found[0]]} and {split}"
                raise UserError("an image is in the lists of two splits", where=entry.path, found=both)
        notes = [f"{len(names)} names"]
        if missing:
            notes.append(f"{len(missing)} without an image: {', '.join(missing[:5])}")
        if split is None:
            notes.append(f"not used: it is named for {' and '.join(sorted(splits))}")
        self.lists[entry.name] = make_file_row(entry, "ok", "split_list", ", ".join(notes))


def _refuse_glued(line: str, entry: Entry, folder: str, resolver: PathResolver) -> None:
    """Refuse a line that holds two names because a line break is missing; half of it would be lost."""
    for match in _SUFFIX.finditer(line):
        head, tail = line[: match.end()], line[match.end() :].strip()
        if tail and resolver.by_full_path(head, (folder, "")) and resolver.by_full_path(tail, (folder, "")):
            raise UserError(
                "a line of a split list holds two names",
                where=entry.path,
                expected="one name per line",
                found=f"{head} and {tail}",
                hint="put a line break between them",
            )


def _places(files: Sequence[NamesFile], known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (split, folder or list of the tree) for what the YAML files name, often paths of another machine.

    The longest end of a named path that exists below the YAML's ``path``, its folder or the root is used.
    """
    for file in files:
        folder = PurePosixPath(file.name).parent
        bases = (folder.joinpath(*(part for part in path_parts(file.base) if part)), folder, PurePosixPath())
        for key, entries in file.splits.items():
            split = split_from_folders(f"{key}/image")
            assert split is not None
            for parts in (path_parts(entry)[-_MAX_DEPTH:] for entry in entries):
                ends = [base.joinpath(*parts[start:]) for start in range(len(parts)) for base in bases]
                place = next((str(end) for end in ends if str(end) in known), None)
                if place is not None:
                    yield split, place


def _lines(entry: Entry, encodings: Encodings | None, ask: bool) -> list[str]:
    text, _ = decode_text(entry.path.read_bytes(), entry.path, encodings, ask)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _lists_images(entry: Entry) -> bool:
    """Check whether every line is the name of an image file."""
    try:
        lines = _lines(entry, None, ask=False)
    except (OSError, TextError):
        return False
    return bool(lines) and all(PurePosixPath(line).suffix.lower() in SUFFIXES for line in lines)
