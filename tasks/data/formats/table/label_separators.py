"""Whether labels seem to be several labels with a sign between them that is not the separator."""

from collections import defaultdict
from collections.abc import Collection

from tasks.data.text.read_text import normal

_SIGNS = ("|", ",", ";", "/", "+", " ")
_LISTING = frozenset({"|", ",", ";"})  # signs that are seldom part of a name


def divided_by(labels: Collection[str], separator: str, declared: Collection[str]) -> tuple[str, str, str] | None:
    """The sign that seems to stand between labels, a label with it, and what speaks for it; ``None`` without any.

    Args:
        labels: All the labels of a table.
        separator: The sign that has divided them already.
        declared: Labels that are declared, and so are one.
    """
    for sign in _SIGNS:
        if sign == separator:
            continue
        divided = {
            label: [normal(part) for part in label.split(sign)] for label in labels if sign in label and label != sign
        }
        divided = {label: parts for label, parts in divided.items() if label not in declared}
        if not divided or not all(map(all, divided.values())):
            continue
        known = set(labels) - set(divided)
        why = _beside(divided, known) if sign != " " else ""
        why = why or _recurring(divided, known, sign)
        if why:
            return sign, sorted(divided)[0], why
    return None


def _beside(divided: dict[str, list[str]], known: set[str]) -> str:
    """Parts that are labels of other rows, when most are."""
    parts = [part for some in divided.values() for part in some]
    if sum(part in known for part in parts) * 2 <= len(parts):
        return ""
    return ", ".join(sorted(known & set(divided[sorted(divided)[0]]))[:4]) or "its parts"


def _recurring(divided: dict[str, list[str]], known: set[str], sign: str) -> str:
    """Labels that share parts, as combinations do: one part at several places, for signs of lists at any."""
    places: dict[str, set[int]] = defaultdict(set)
    uses: dict[str, set[str]] = defaultdict(set)
    for label, parts in divided.items():
        for number, part in enumerate(parts):
            places[part].add(number)
            uses[part].add(label)
    several = sorted(part for part in uses if len(uses[part]) > 1)
    moved = [part for part in several if len(places[part]) > 1]
    if sign == " " and (not moved or sum(part in known or part in several for part in uses) < 0.8 * len(uses)):
        return ""
    shared = several if sign in _LISTING else moved
    if not shared:
        return ""
    first = sorted(divided)[0]
    return ", ".join(map(repr, sorted(uses[shared[0]] - {first})[:3]))
