"""Write ``params.yaml`` in place; comments, order and unchanged values are kept."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.settings.dotted import flat
from flows.settings.files import load_settings, read_yaml
from flows.settings.schema import Settings, as_values
from models.files import write_text
from tasks.core.yaml_text import dump_yaml
from tasks.versioning import dvc


def write_settings(file: Path, settings: Settings, complete: bool = False) -> list[str]:
    """Write the effective settings into a settings file; return one line per change, none for a new file.

    Args:
        file: Edited in place, or created.
        settings: The effective settings.
        complete: Whether to add keys that the file leaves to their defaults; DVC tracks only keys in the file.

    Raises:
        UserError: If the file exists and is not a settings file.
    """
    values = as_values(settings)
    if not file.exists():
        write_text(file, dump_yaml(values))
        return []
    present, written = as_values(load_settings(file)), read_yaml(file)
    now, changes = flat(present), dvc.nested_changes(present, values)
    added = {k: v for k, v in _missing_keys(written, values).items() if k not in changes} if complete else {}
    if changes or added:
        dvc.write_params(file, added | changes, create=True, order=values)
    lines = [f"{key}: {now.get(key)} -> {value}" for key, value in changes.items()]
    return lines + [f"{key}: added, {value}" for key, value in added.items()]


def settings_text(file: Path, settings: Settings) -> tuple[bytes, list[str]]:
    """Return the content that ``write_settings`` would write to a file, and its lines; the file is not changed."""
    with tempfile.TemporaryDirectory(prefix="fedscene-") as folder:
        copy = Path(folder) / file.name
        if file.exists():
            copy.write_bytes(file.read_bytes())
        lines = write_settings(copy, settings)
        return copy.read_bytes(), lines


def _missing_keys(written: Mapping[str, Any], values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted key -> value of what a file lacks; a missing section counts as one key."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if key not in written:
            out[f"{prefix}{key}"] = value
        elif isinstance(value, Mapping) and isinstance(written[key], Mapping):
            out |= _missing_keys(written[key], value, f"{prefix}{key}.")
    return out
