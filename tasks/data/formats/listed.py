"""Finds the files that a list or a JSON names, which is seldom exactly how they lie on this disk."""

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from tasks.data.formats.tree import split_of


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
