"""Detects labels that seem to be several labels joined by another separator."""

from collections import defaultdict
from collections.abc import Collection

from tasks.data.text.read_text import normalize

_SEPARATORS = ("|", ",", ";", "/", "+", " ")
_LIST_SEPARATORS = frozenset({"|", ",", ";"})  # rarely part of a name


def guess_separator(labels: Collection[str], separator: str, declared: Collection[str]) -> tuple[str, str, str] | None:
    """Return the likely separator, a label that holds it, and the evidence; ``None`` if there is none.

    Args:
        labels: All labels of a table.
        separator: The separator that was used to split them.
        declared: Declared labels, which are never split.
    """
    for candidate in _SEPARATORS:
        if candidate == separator:
            continue
        divided = {
            label: [normalize(part) for part in label.split(candidate)]
            for label in labels
            if candidate in label and label != candidate
        }
        divided = {label: parts for label, parts in divided.items() if label not in declared}
        if not divided or not all(map(all, divided.values())):
            continue
        known = set(labels) - set(divided)
        why = _known_parts(divided, known) if candidate != " " else ""
        why = why or _recurring(divided, known, candidate)
        if why:
            return candidate, sorted(divided)[0], why
    return None


def _known_parts(divided: dict[str, list[str]], known: set[str]) -> str:
    """Return parts that are labels of other rows, if most are; else ""."""
    parts = [part for some in divided.values() for part in some]
    if sum(part in known for part in parts) * 2 <= len(parts):
        return ""
    return ", ".join(sorted(known & set(divided[sorted(divided)[0]]))[:4]) or "its parts"


def _recurring(divided: dict[str, list[str]], known: set[str], candidate: str) -> str:
    """Return labels that share parts, as combinations do: at different positions, or anywhere for list separators."""
    places: dict[str, set[int]] = defaultdict(set)
    uses: dict[str, set[str]] = defaultdict(set)
    for label, parts in divided.items():
        for number, part in enumerate(parts):
            places[part].add(number)
            uses[part].add(label)
    several = sorted(part for part in uses if len(uses[part]) > 1)
    moved = [part for part in several if len(places[part]) > 1]
    if candidate == " " and (not moved or sum(part in known or part in several for part in uses) < 0.8 * len(uses)):
        return ""
    shared = several if candidate in _LIST_SEPARATORS else moved
    if not shared:
        return ""
    first = sorted(divided)[0]
    return ", ".join(map(repr, sorted(uses[shared[0]] - {first})[:3]))
