"""Finds the files that a list or JSON names. Listed paths rarely match this disk exactly."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from tasks.data.formats.shared.tree import NO_SITE, Entry, make_file_row, make_image_row, split_from_folders
from tasks.data.images.image import ImageFile
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.source.rules import NameFunction
from tasks.data.source.sample import Boxes, RawSample
from tasks.data.text.equivalent_names import fold_parts, path_parts

#: Prefix of the detail of an image that no list names.
NOT_LISTED = "not listed"


@dataclass(frozen=True)
class ListingEntry:
    """One entry of a list: what it says about its image.

    Attributes:
        labels: As written; ``None`` if it does not say.
        split: The split it names, if any.
        place: The line, row or file.
        reason: Quarantine code if the entry cannot be used, else "".
        detail: One human-readable line.
        fields: Its columns.
        boxes: Its boxes.
        inexact: How its name was matched if no file has exactly this name, else "".
        repair: Code of a repair of its labels, else "".
    """

    labels: tuple[str, ...] | None
    split: str | None
    place: str
    reason: str = ""
    detail: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    boxes: Boxes = field(default_factory=Boxes)
    inexact: str = ""
    repair: str = ""


def make_listed_row(entry: Entry, entries: Sequence[ListingEntry], site_of: NameFunction | None) -> RawSample:
    """Return the row of an image that is listed at least once: equal entries count once, different ones contradict.

    Entries that differ only in that one names no split are equal.

    Args:
        entry: The image file.
        entries: Its entries, at least one.
        site_of: The site rule if it needs the entry's columns, else the file's own site counts.
    """
    first = entries[0]
    site = site_of(entry.name, first.fields) if site_of else entry.site
    labels = {(each.labels and tuple(sorted(each.labels)), each.reason) for each in entries}
    splits = dict.fromkeys(each.split for each in entries if each.split)
    places = ", ".join(dict.fromkeys(each.place for each in entries[:5]))
    inexact = next((each.inexact for each in entries if each.inexact), "")
    status, reason, detail = "ok", "", first.detail
    if site == NO_SITE:
        status, reason, detail = "quarantined", "no_site", "ingest.site names no site for it"
    elif len(labels) > 1 or len(splits) > 1:
        status, reason, detail = "quarantined", "ambiguous_pair", _contradiction(entries, places)
    elif first.reason:
        status, reason = "quarantined", first.reason
    elif inexact:
        status, reason, detail = "fixed", "near_name", inexact
    elif first.repair:
        status, reason = "fixed", first.repair
    elif len(entries) > 1:
        status, reason, detail = "fixed", "repeated", f"listed {len(entries)} times: {places}"
    return RawSample(
        entry.name,
        site,
        None if status == "quarantined" else first.labels,
        status,
        reason,
        ImageFile(entry.path),
        split=next(iter(splits), None) or split_from_folders(entry.name),
        detail=detail,
        boxes=first.boxes,
        fields=first.fields,
    )


def join_entries(entries: Sequence[ListingEntry]) -> Sequence[ListingEntry]:
    """Join entries of one image that each hold some of its labels; entries that cannot be used stay as they are."""
    first = entries[0]
    if len(entries) == 1 or any(each.labels is None or each.split != first.split for each in entries):
        return entries
    labels = tuple(dict.fromkeys(label for each in entries for label in each.labels or ()))
    sides = tuple(side for each in entries for side in each.boxes.sides)
    repair = next((each.repair for each in entries if each.repair), "")
    return [replace(first, labels=labels, boxes=replace(first.boxes, sides=sides), repair=repair)]


def make_unlisted_row(entry: Entry, listing: str, unlisted: str) -> RawSample:
    """Return the row of an image that no list names: unlabelled, or left out if ``ingest.unlisted`` says so."""
    if entry.site == NO_SITE:
        return make_image_row(entry, "no_site", "ingest.site names no site for it")
    if unlisted == "ignore":
        return make_file_row(entry, "ignored", "not_listed")
    return make_image_row(entry, "no_annotation", f"{NOT_LISTED} in {listing}")


def _contradiction(entries: Sequence[ListingEntry], places: str) -> str:
    """Describe what the entries say, one of each kind."""
    said: dict[object, str] = {}
    for each in entries:
        labels = each.reason if each.labels is None else ", ".join(sorted(each.labels)) or "no label"
        key = (each.labels and tuple(sorted(each.labels)), each.split, each.reason)
        said.setdefault(key, f"{each.place}: {labels}" + (f" ({each.split})" if each.split else ""))
    shown = "; ".join(list(said.values())[:3])
    return f"listed {len(entries)} times with other labels or in other splits: {places} ({shown})"


@dataclass(frozen=True)
class ListedPath:
    """A path that a list names.

    Attributes:
        listed: As written.
        place: The line, row or file, for messages.
        folders: If several files match, the one directly below the first of these folders is meant.
        split: The split of the list or the row, if any: files in folders of another split are not meant.
    """

    listed: str
    place: str
    folders: Sequence[str] = ()
    split: str | None = None


@dataclass(frozen=True)
class Resolved:
    """The result for one listed path.

    Attributes:
        file: The file, ``None`` if it is missing or ambiguous.
        detail: Why there is none, or how an inexact name was matched.
    """

    file: str | None
    detail: str = ""


class PathResolver:
    """Looks up listed paths among the files of a tree.

    Args:
        names: The files' paths relative to the tree's root.
        second: More files (excluded ones, copies), which match only by their whole path.
        images: Those of them that may be listed by their stem or under another suffix.
    """

    def __init__(self, names: Iterable[str], second: Iterable[str] = (), images: Iterable[str] = ()) -> None:
        self._second = frozenset(second)
        self._by_stem: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for name in images:
            parts = path_parts(name)
            self._by_stem[PurePosixPath(parts[-1]).stem].append(((*parts[:-1], PurePosixPath(parts[-1]).stem), name))
        self._by_base: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._by_near: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for name in (*names, *self._second):
            parts, near = path_parts(name), fold_parts(name)
            self._by_base[parts[-1]].append((parts, name))
            self._by_near[near[-1]].append((near, name))

    def by_full_path(self, listed: str, folders: Sequence[str] = (), split: str | None = None) -> list[str]:
        """Return the files whose path ends with the whole listed path.

        Of several, the one right below the first of ``folders`` is meant, else those in a folder of the ``split``.
        """
        found = _whole(self._by_base, path_parts(listed), [path_parts(folder) for folder in folders], split)
        return [name for name in found if name not in self._second] or found

    def by_name(self, listed: str, split: str | None = None, taken: Collection[str] = ()) -> list[str]:
        """Return the files with the listed file name, except those ``taken`` or of another split."""
        return _base(self._by_base, path_parts(listed), split, self._second.union(taken))

    def by_equivalent_name(
        self, listed: str, folders: Sequence[str] = (), split: str | None = None, taken: Collection[str] = ()
    ) -> list[str]:
        """Return the files, except those ``taken``, that match when case, percent signs and blanks are ignored."""
        parts, taken = fold_parts(listed), self._second.union(taken)
        found = _whole(self._by_near, parts, [fold_parts(folder) for folder in folders], split)
        return [name for name in found if name not in taken] or _base(self._by_near, parts, split, taken)

    def by_stem(
        self, listed: str, folders: Sequence[str] = (), split: str | None = None, taken: Collection[str] = ()
    ) -> list[str]:
        """Return the images, except those ``taken``, of that name without a suffix or with another one."""
        parts, taken = path_parts(listed), self._second.union(taken)
        last = PurePosixPath(parts[-1])
        bare = last.stem if last.suffix.lower() in SUFFIXES else last.name
        found = _whole(self._by_stem, (*parts[:-1], bare), [path_parts(folder) for folder in folders], split)
        return [name for name in found if name not in taken] or _base(self._by_stem, (bare,), split, taken)

    def resolve(self, wanted: Sequence[ListedPath]) -> list[Resolved]:
        """Resolve each path: first as a whole, then by file name, by equivalent name, by stem.

        A name without an exact match gets a file only if no other entry means that file and no other file matches: many
        paths are from another machine, but none is guessed.
        """
        found: list[Resolved | None] = [None] * len(wanted)
        rest = []
        for number, one in enumerate(wanted):
            files = self.by_full_path(one.listed, one.folders, one.split)
            if len(files) == 1:
                found[number] = Resolved(files[0])
            else:
                rest.append(number)
        taken = {one.file for one in found if one is not None and one.file is not None}
        for how in ("base", "near", "stem"):
            claims: dict[str, list[int]] = defaultdict(list)
            for number in rest:
                one = wanted[number]
                files = self._inexact(one, taken, how)
                if len(files) == 1:
                    claims[files[0]].append(number)
                elif files:
                    found[number] = Resolved(None, _several(one, files, how))
            for file, numbers in claims.items():
                same = len({path_parts(wanted[number].listed) for number in numbers}) == 1
                for number in numbers:
                    found[number] = (
                        Resolved(file, _read_as(wanted[number], how))
                        if same
                        else Resolved(None, f"listed in {wanted[number].place}; {file} may be it, or another")
                    )
                taken |= {file} if same else set()
            rest = [number for number in rest if found[number] is None]
        for number in rest:
            found[number] = Resolved(None, self._missing(wanted[number]))
        return [one for one in found if one is not None]

    def _inexact(self, one: ListedPath, taken: Collection[str], how: str) -> list[str]:
        if how == "near":
            return self.by_equivalent_name(one.listed, one.folders, one.split, taken)
        if how == "stem":
            return self.by_stem(one.listed, one.folders, one.split, taken)
        return self.by_name(one.listed, one.split, taken)

    def _missing(self, one: ListedPath) -> str:
        """Say why there is no file, with those of nearly the same name."""
        near = self.by_equivalent_name(one.listed, one.folders, one.split)
        hint = f"; {', '.join(near[:3])} has nearly its name, but is listed itself" if near else ""
        return f"listed in {one.place}{hint}"


def _several(one: ListedPath, files: Sequence[str], how: str) -> str:
    what = {"near": "have nearly its name (upper and lower case, %20, blanks)", "stem": "have its stem"}
    return f"listed in {one.place}; several files {what.get(how, 'have its name')}: {', '.join(files[:3])}"


def _read_as(one: ListedPath, how: str) -> str:
    suffix = PurePosixPath(one.listed).suffix.lower()
    if how == "base" or (how == "stem" and suffix not in SUFFIXES):
        return ""  # a name without its suffix is as good as with it
    if how == "stem":
        return f"listed as {one.listed} in {one.place}; the only image of that stem"
    return f"listed as {one.listed} in {one.place}; the only file with nearly this name"


_Index = Mapping[str, Sequence[tuple[tuple[str, ...], str]]]


def _whole(index: _Index, parts: tuple[str, ...], folders: Iterable[tuple[str, ...]], split: str | None) -> list[str]:
    found = [entry for entry in index.get(parts[-1], ()) if entry[0][-len(parts) :] == parts]
    if len(found) > 1:
        for folder in folders:
            exact = [entry for entry in found if entry[0] == (*filter(None, folder), *parts)]
            if exact:
                return [name for _, name in exact]
        found = [entry for entry in found if split_from_folders(entry[1]) == split] or found
    return [name for _, name in found]


def _base(index: _Index, parts: tuple[str, ...], split: str | None, taken: Collection[str]) -> list[str]:
    found = [name for _, name in index.get(parts[-1], ()) if name not in taken]
    return [name for name in found if split is None or split_from_folders(name) in (None, split)]
