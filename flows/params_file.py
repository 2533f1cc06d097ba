"""``params.yaml`` written in place: comments, order and what did not change stay."""

from pathlib import Path

import yaml

from flows.settings import Settings, as_values, flat, load_settings
from tasks import versioning


def write_settings(file: Path, settings: Settings) -> list[str]:
    """Makes a settings file say what is in effect; returns one line per change, none for a new file.

    Raises:
        UserError: If the file is there and is no settings file.
    """
    values = as_values(settings)
    if not file.exists():
        file.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
        return []
    present = as_values(load_settings(file))
    now, changes = flat(present), versioning.nested_changes(present, values)
    if changes:
        versioning.write_params(file, changes, create=True)
    return [f"{key}: {now.get(key)} -> {value}" for key, value in changes.items()]
