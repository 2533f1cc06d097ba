"""The categories of a COCO JSON: which ids exist, and which of them are labels."""

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.data.formats.coco.ids import Ids, normalize_id
from tasks.data.text.read_text import normalize

_NO_PARENT = frozenset({"", "none", "null"})
_BACKGROUND = frozenset({"_background_", "__background__", "__ignore__"})  # as labelme's converter writes them


class Categories:
    """The categories by id.

    Args:
        found: The JSON's list.
        path: The file, for messages.

    Attributes:
        names: Id -> name, in the order of the ids when those are numbers.
        root: Id of a category that is no label unless an annotation has it: the supercategory of all others, as
            Roboflow writes it, or labelme's ``_background_``; ``None`` without one.
        is_supercategory: Whether it is Roboflow's.

    Raises:
        UserError: A category lacks its id or name, or two have one id.
    """

    def __init__(self, found: Sequence[Any], path: Path) -> None:
        names: dict[str, str] = {}
        for number, category in enumerate(found):
            name = category.get("name") if isinstance(category, dict) else None
            key = normalize_id(category.get("id")) if isinstance(category, dict) else None
            if key is None or not isinstance(name, str) or not normalize(name):
                raise UserError(
                    "a category lacks its id or its name",
                    where=f"{path}, categories, position {number}",
                    expected='{"id": 1, "name": "crack"}',
                    found=reprlib.repr(category),
                )
            if names.setdefault(key, plain(name)) != plain(name):
                two = f"{names[key]} and {plain(name)}"
                raise UserError("two categories have one id", where=path, found=f"id {key[:40]}: {two}")
        if all(key.isascii() and key.isdigit() for key in names):
            names = {key: names[key] for key in sorted(names, key=lambda key: (len(key.lstrip("0")), key))}
        self.is_supercategory = _has_supercategory(found, names)
        self.names, self.root = names, "0" if self.is_supercategory else _background(names)
        self._ids = Ids(names)

    def find(self, value: object) -> str | None:
        """Return the id that an annotation's ``category_id`` refers to, ``None`` if it is not listed."""
        return self._ids.find(value)


def _background(names: dict[str, str]) -> str | None:
    return next((key for key, name in names.items() if name.lower() in _BACKGROUND), None)


def _has_supercategory(found: Sequence[Any], names: dict[str, str]) -> bool:
    """Check for Roboflow's root category: id 0, the supercategory of all others, itself without one."""
    above = {normalize_id(one["id"]): one.get("supercategory") for one in found}
    name, parent = names.get("0"), above.pop("0", None)
    parent_name = normalize(parent).lower() if isinstance(parent, str) else ""
    if name is None or not above or (parent_name not in _NO_PARENT and parent_name != name.lower()):
        return False
    return all(isinstance(one, str) and normalize(one) == name for one in above.values())


def plain(text: str) -> str:
    """Return a name without surrounding blanks, lone surrogates (which JSON can hold) as character references."""
    # not as normalize() writes them, as a backslash divides folders
    return normalize(text.encode("utf-8", "xmlcharrefreplace").decode("utf-8"))
