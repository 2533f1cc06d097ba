"""Settings, values and presets that were renamed, listed in ``renames.yaml``.

An old name in a settings file, a preset or an override is refused with the new name in the message. The settings that
an earlier release wrote into a run's folder are translated instead, so that the run can still be read.
"""

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from flows.settings.dotted import merge, nested
from models.errors import UserError
from tasks.core.yaml_text import parse_yaml

_TABLES = parse_yaml((resources.files("flows.settings") / "renames.yaml").read_text(encoding="utf-8"))
KEYS: dict[str, str] = _TABLES["keys"]
VALUES: dict[str, dict[str, str]] = _TABLES["values"]
PRESETS: dict[str, str] = _TABLES["presets"]
TABLE_ROW_KEYS: dict[str, str] = _TABLES["table_row_keys"]

_MAX_DEPTH = 3  # of the keys below a renamed section that a message names; YAML's anchors can make a section endless


def refuse_old_names(values: Mapping[str, Any], where: object) -> None:
    """Refuse settings that use an old name.

    Args:
        values: Nested settings, before they are validated.
        where: The file, preset or option that they come from, for the message.

    Raises:
        UserError: If a key or a value was renamed; the message names the new one.
    """
    lines = [*_old_keys(values), *_old_values(current_names(values, of_values=False))]
    if lines:
        several = "\n    " + "\n    ".join(lines) if len(lines) > 1 else None
        what = "some settings were renamed" if several else f"renamed setting: {lines[0]}"
        raise UserError(what, where=where, found=several)


def refuse_old_preset(name: str) -> None:
    """Refuse the old name of a preset.

    Raises:
        UserError: If the preset was renamed.
    """
    if name in PRESETS:
        raise UserError(f"renamed preset: {name} is now {PRESETS[name]}", where="--preset")


def refuse_old_row_keys(row: Mapping[str, Any], where: object) -> None:
    """Refuse a row of a table file that uses an old key.

    Raises:
        UserError: If a key was renamed.
    """
    for old in TABLE_ROW_KEYS.keys() & row.keys():
        raise UserError(f"renamed key: {old} is now {TABLE_ROW_KEYS[old]}", where=where)


def current_names(values: Mapping[str, Any], of_values: bool = True) -> dict[str, Any]:
    """Return nested settings with every old key, and every old value, replaced by its present name.

    Args:
        values: Nested settings of this or an earlier release.
        of_values: Whether values are translated as well as keys.
    """
    out: dict[str, Any] = dict(values)
    for old in sorted(KEYS, key=lambda key: key.count("."), reverse=True):  # keys of a section before the section
        if _has(out, old):
            renamed = nested({KEYS[old]: _get(out, old)})
            out = merge(renamed, _without(out, old))
    for key, renamed_values in VALUES.items() if of_values else ():
        value = _get(out, key)
        if isinstance(value, str) and value in renamed_values:
            out = merge(out, nested({key: renamed_values[value]}))
    return out


def _old_keys(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line per old key: the only key of a renamed section in full, otherwise the section."""
    for old, new in KEYS.items():
        if not _has(values, old):
            continue
        below, value = "", _get(values, old)
        for _ in range(_MAX_DEPTH):
            if isinstance(value, Mapping) and len(value) == 1:
                key, value = next(iter(value.items()))
                below += f".{key}"
        yield f"{old}{below} is now {new}{below}"


def _old_values(values: Mapping[str, Any]) -> Iterator[str]:
    for key, renamed in VALUES.items():
        value = _get(values, key)
        if isinstance(value, str) and value in renamed:
            yield f"{key}: {value} is now {renamed[value]}"


def _has(values: Mapping[str, Any], key: str) -> bool:
    head, _, rest = key.partition(".")
    if head not in values:
        return False
    inner = values[head]
    return not rest or (isinstance(inner, Mapping) and _has(inner, rest))


def _get(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, ``None`` if there is none."""
    value: Any = values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    head, _, rest = key.partition(".")
    if not rest:
        return {name: value for name, value in values.items() if name != head}
    return {name: _without(value, rest) if name == head else value for name, value in values.items()}
