"""Labels and sites that differ only in spelling details: probably the same one."""

import re
from collections import defaultdict
from collections.abc import Iterable

_MAX_GROUPS = 3  # groups that are shown
_NUMBER = re.compile(r"0*(\d+)(?:\.0+)?")


def similar_names(labels: Iterable[str], sites: Iterable[str]) -> list[str]:
    """Return lines on labels and sites that differ only in case, blanks, dashes, or how a number is written."""
    lines = []
    for what, names, hint in (
        ("labels", labels, "ingest.label_aliases joins them"),
        ("sites", sites, "if they are one, write them alike in the source"),
    ):
        groups = _groups(names)
        if groups:
            shown = "; ".join(", ".join(map(repr, group[:4])) for group in groups[:_MAX_GROUPS])
            lines.append(f"{what} that differ only in how they are written: {shown}; {hint}")
    return lines


def _groups(names: Iterable[str]) -> list[list[str]]:
    by_key: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(names)):
        by_key[_key(name)].append(name)
    return [group for group in by_key.values() if len(group) > 1]


def _key(name: str) -> str:
    number = _NUMBER.fullmatch(name)
    return number.group(1) if number else re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", name).casefold()
