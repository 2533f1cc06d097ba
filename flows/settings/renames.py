"""Settings, values and presets that were renamed.

An old name in a settings file, a preset or an override is refused with the new name in the message. The settings that
an earlier release wrote into a run's folder are translated instead, so that the run can still be read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.settings.dotted import merge, nested
from models.errors import UserError

# Old dotted key -> new dotted key. A renamed section takes its keys with it.
KEYS: dict[str, str] = {
    "ingest.rendered": "ingest.synthetic",
    "objective.fedlgt.guide_scope": "objective.fedlgt.reference_scope",
    "model.fmman.state_words": "model.fmman.state_embeddings",
    "objective.lmt": "objective.label_mask_training",
    "partition.redraws": "partition.resamples",
    "report.pictures": "report.images",
}

# Key (its present name) -> {old value: new value}.
VALUES: dict[str, dict[str, str]] = {
    "federation.engine": {"direct": "local"},
    "ingest.source": {"rendered": "synthetic"},
    "model.labels.source": {"lexical": "hash"},
    "method.fmman.stage3_start": {"own": "own_cluster", "best": "best_cluster"},
    "objective.fmman.ae_target": {"label_table": "label_embeddings"},
    "objective.fmman.contrast_mode": {"own_group": "own_cluster"},
    "objective.fmman.prox": {"own_group": "own_cluster"},
    "objective.fmman.state_init": {"lmt": "label_mask_training"},
    "objective.name": {"lmt": "label_mask_training", "native": "default"},
}

# Key of a row in a table file of `fedscene replicate`: old -> new.
TABLE_ROW_KEYS: dict[str, str] = {"at": "overrides", "stages": "local_trainings_per_round"}

# Old preset -> new preset.
PRESETS: dict[str, str] = {"fmman_random_groups": "fmman_random_clusters"}

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
