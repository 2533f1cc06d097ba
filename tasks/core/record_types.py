"""A round's record from outside: what it holds is checked to be of the types that its fields are declared with."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from tasks.core.former_names import current_metric_names
from tasks.core.records import RoundRecord

LARGEST = 2**63  # of a whole number; larger ones are no counts, and no float holds the largest
# What making a record of other things raises: a key that is not there, a text where a mapping was, 1e999 as a count
_NOT_A_RECORD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def read_record(value: Mapping[str, Any], number: int) -> RoundRecord:
    """The record of round ``number`` from what its file holds.

    Raises:
        ValueError: If it is no such record; says in one line what is wrong.
    """
    try:
        record = RoundRecord.of(current_metric_names(value))
    except _NOT_A_RECORD as error:
        raise ValueError(f"{type(error).__name__}: {str(error)[:200]}") from error
    wrong = misfit(record, RoundRecord)
    if wrong is not None:
        raise ValueError(wrong)
    if record.round != number:
        raise ValueError(f"it says that it is of round {record.round}")
    return record


def misfit(value: Any, hint: Any, place: str = "") -> str | None:
    """The first place where a value is not of a declared type, with what is there; ``None`` if all fits.

    Args:
        value: The value.
        hint: Its type: a dataclass, int, float, str, list[T], tuple[T, ...], dict[K, V], or one of several.
        place: Where it stands, for the message.
    """
    if is_dataclass(hint):
        if not isinstance(value, hint):  # type: ignore[arg-type]
            return _found(value, place)
        declared, parts = get_type_hints(hint), [(f.name, getattr(value, f.name)) for f in fields(hint)]
        return _first(misfit(part, declared[name], f"{place}.{name}".lstrip(".")) for name, part in parts)
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        wrong = [misfit(value, one, place) for one in inner]
        return None if None in wrong else wrong[0]
    if kind is dict:
        if not isinstance(value, dict):
            return _found(value, place)
        keys = _first(misfit(key, inner[0], f"a key of {place}") for key in value)
        return keys or _first(misfit(part, inner[1], f"{place}.{str(key)[:60]}") for key, part in value.items())
    if kind in (list, tuple):
        if not isinstance(value, kind) or (kind is tuple and len(value) != len(inner)):
            return _found(value, place)
        hints = inner if kind is tuple else inner * len(value)
        return _first(
            misfit(part, one, f"{place}[{k}]") for k, (part, one) in enumerate(zip(value, hints, strict=True))
        )
    return None if _fits(value, hint) else _found(value, place)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of a plain type; a true is no number, and text must be such that UTF-8 can hold it."""
    if hint is str:
        return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    if hint is float and isinstance(value, float):
        return True  # NaN and infinity too: a metric may not be defined
    if hint in (int, float):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    return value is None if hint in (None, type(None)) else isinstance(value, hint)


def _first(found: Any) -> str | None:
    return next((wrong for wrong in found if wrong is not None), None)


def _found(value: Any, place: str) -> str:
    text = "a number that is too large" if isinstance(value, int) and abs(value) >= LARGEST else ascii(value)[:60]
    return f"{place[:120] or 'the record'} is {text}"
