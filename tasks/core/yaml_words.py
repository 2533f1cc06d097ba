"""What YAML makes of a word that was meant as text, and what to say about it."""

import datetime

#: What YAML parsers raise besides their own errors: a tag such as !!timestamp or !!bool on a text that is none.
CONSTRUCTION_FAULTS = (
    ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError
)  # fmt: skip
_TRUTH = {True: "yes, on, true", False: "no, off, false"}


def quotes_hint(value: object) -> str:
    """Why a text is none for YAML and what helps, "" for values that were never meant as text."""
    if isinstance(value, bool):
        return f"YAML takes {_TRUTH[value]} without quotes for {str(value).lower()}: put it in quotes"
    if value is None:
        return 'YAML takes null, ~ and nothing for no value: put it in quotes, as "null"'
    if isinstance(value, int | float):
        return f'YAML takes it for the number {value}: put it in quotes as it is meant, as "{value}" or "007"'
    if isinstance(value, datetime.date | datetime.time):
        return f'YAML takes it for a date: put it in quotes, as "{value}"'
    return ""
