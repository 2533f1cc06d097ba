"""Finds the files that a list or a JSON names, which is seldom exactly how they lie on this disk."""

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tasks.data.formats.tree import NO_SITE, Entry, split_of
from tasks.data.rules import Namer
from tasks.data.sample import Boxes, RawSample
from tasks.data.source import FilePicture


@dataclass(frozen=True)
class Mention:
    """What one entry of a list says of its image.

    Attributes:
        labels: As written; ``None`` when it does not say.
        split: The split it names, if any.
        place: Where it stands: a line, a row, a file.
        reason: Quarantine code when the entry cannot be used, else "".
        detail: One line for a person.
        fields: Its columns.
        boxes: Its boxes.
    """

    labels: tuple[str, ...] | None
    split: str | None
    place: str
    reason: str = ""
    detail: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    boxes: Boxes = field(default_factory=Boxes)


def listed_image(entry: Entry, mentions: Sequence[Mention], site_of: Namer | None) -> RawSample:
    """The row of an image that is listed once or more often: equal entries count once, others contradict.

    Args:
        entry: The image file.
        mentions: What is said of it, at least one.
        site_of: The site rule when it needs the entry's columns, else the file's own site counts.
    """
    first = mentions[0]
    site = site_of(entry.name, first.fields) if site_of else entry.site
    contents = {(each.labels and tuple(sorted(each.labels)), each.split, each.reason) for each in mentions}
    places = ", ".join(dict.fromkeys(each.place for each in mentions[:5]))
    status, reason, detail = "ok", "", first.detail
    if site == NO_SITE:
        status, reason, detail = "quarantined", "no_site", "ingest.site names no site for it"
    elif len(contents) > 1:
        status, reason = "quarantined", "ambiguous_pair"
        detail = f"listed {len(mentions)} times with other labels or in other splits: {places}"
    elif first.reason:
        status, reason = "quarantined", first.reason
    elif len(mentions) > 1:
        status, reason, detail = "fixed", "repeated", f"listed {len(mentions)} times: {places}"
    return RawSample(
        entry.name,
        site,
        None if status == "quarantined" else first.labels,
        status,
        reason,
        FilePicture(entry.path),
        split=first.split or split_of(entry.name),
        detail=detail,
        boxes=first.boxes,
        fields=first.fields,
    )


class Finder:
    """Looks up listed paths among the files of a tree.

    Args:
        names: The files' paths relative to the tree's root.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._by_base: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        for name in names:
            parts = parts_of(name)
            self._by_base[parts[-1]].append((parts, name))

    def whole(self, listed: str, folders: Sequence[str] = (), split: str | None = None) -> list[str]:
        """The files whose path ends with all of the listed one.

        Of several, the one right below the first of ``folders`` is meant, else those in a folder of the ``split``.
        """
        parts = parts_of(listed)
        found = [entry for entry in self._by_base.get(parts[-1], ()) if entry[0][-len(parts) :] == parts]
        if len(found) > 1:
            for folder in folders:
                exact = [entry for entry in found if entry[0] == (*parts_of(folder), *parts)]
                if exact:
                    return [exact[0][1]]
            found = [entry for entry in found if split_of(entry[1]) == split] or found
        return [name for _, name in found]

    def base(self, listed: str, split: str | None = None, taken: Collection[str] = ()) -> list[str]:
        """The files that have the listed one's bare name, without those ``taken`` or of another split."""
        found = [name for _, name in self._by_base.get(parts_of(listed)[-1], ()) if name not in taken]
        return [name for name in found if split is None or split_of(name) in (None, split)]


def parts_of(listed: str) -> tuple[str, ...]:
    """A path's parts without what differs between machines: drives, roots, ``.`` and ``..``, backslashes."""
    text = unicodedata.normalize("NFC", listed.strip()).replace("\\", "/")
    return tuple(part for part in text.split("/") if part not in ("", ".", "..") and not part.endswith(":")) or ("",)
