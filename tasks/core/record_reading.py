"""Reading records that another process, or another release, wrote.

Records on disk outlive the code that wrote them. A field that one of them lacks has its default, a field that is not
known is left out, and a record of a later version is refused: a change that older code would misread raises it.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from models.errors import UserError

VERSION = 1  # of all records on disk but a round's; one that names none is of version 1
ROUND_VERSION = 2  # of a round's record: from 2 on it has a ``state``
Record = TypeVar("Record")


def require_known(value: Mapping[str, Any], where: object) -> None:
    """Refuse a record that a later release wrote in a way that this one would misread.

    Raises:
        UserError: If the record's version is a later one.
    """
    known = ROUND_VERSION if "round" in value else VERSION
    found = value.get("version", VERSION)
    if isinstance(found, int) and found > known:
        raise UserError(
            "this was written by a later release of FedScene",
            where=where,
            expected=f"a record of version {known} or earlier",
            found=f"version {found}",
            hint="use the release that wrote it, or a later one",
        )


def read_record(adapter: "TypeAdapter[Record]", value: Mapping[str, Any], what: str) -> Record:
    """Check a record from outside against its declared types; missing fields get their defaults, unknown ones go.

    Raises:
        ValueError: In one line: which field is wrong, and what it holds.
    """
    if _holds_huge_number(value):
        raise ValueError(f"{what} holds a number that is too large")
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        raise ValueError(
            f"{place[:120] or what} is {ascii(first['input'])[:60]}: {first['msg'][:120].lower()}"
        ) from error


def _holds_huge_number(value: Any) -> bool:
    """Tell whether an integer is too large for 64 bits; as a float it would silently be infinite."""
    if isinstance(value, Mapping):
        return any(map(_holds_huge_number, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_huge_number, value))
    return isinstance(value, int) and abs(value) >= 2**63
