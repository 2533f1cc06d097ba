"""Ids in a COCO JSON: equal numbers are one id, written as ``51``, ``51.0``, ``5.1e1`` or ``"51"``."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable

from tasks.data.text.read_text import normalize

_EXACT = 2.0**53  # above it neighbouring whole numbers are one float
_NUMBER = re.compile(r"[+-]?\d{1,18}(\.0*|(\.\d{1,18})?[eE][+-]?\d{1,2})?")


def normalize_id(value: object) -> str | None:
    """Return an id as text; ``None`` for what is no id, such as ``null``, ``true``, a list or NaN."""
    if isinstance(value, str):
        return normalize(value) or None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    return str(value)


class Ids:
    """The listed ids, to look up differently written ones.

    Args:
        ids: As ``normalize_id`` gives them.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = frozenset(ids)
        self._by_number: dict[str, list[str]] = defaultdict(list)
        for one in self._ids:
            number = _number(one)
            if number is not None:
                self._by_number[number].append(one)

    def find(self, value: object) -> str | None:
        """Return the listed id that is written the same, else the only one that is the same number."""
        wanted = normalize_id(value)
        if wanted is None or wanted in self._ids:
            return wanted
        number = _number(wanted)
        same = self._by_number.get(number, []) if number is not None else []
        return same[0] if len(same) == 1 else None


def _number(text: str) -> str | None:
    """Return the integer that a text stands for in its shortest form, ``None`` if it is none."""
    if not _NUMBER.fullmatch(text):
        return None
    if "e" not in text.lower():
        return str(int(text.partition(".")[0]))
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else None
