"""Read settings from files, shipped presets and overrides."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from flows.settings.dotted import merge, nested
from flows.settings.renames import refuse_old_names, refuse_old_preset
from flows.settings.schema import Settings, validate
from models.errors import UserError
from tasks.core.yaml_text import YamlTextError, parse_yaml


def presets() -> list[str]:
    """Return the names of the shipped presets."""
    folder = resources.files("flows.settings") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def about_preset(name: str) -> str:
    """Return the first sentence of a preset's head comment."""
    text = (resources.files("flows.settings") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    head = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
    return head.split(". ")[0].split(":  ")[0].split("   fedscene")[0].strip()


def load_preset(name: str) -> dict[str, Any]:
    """Return a shipped preset, or the content of a YAML file when ``name`` is a path.

    Raises:
        UserError: If there is neither.
    """
    refuse_old_preset(name)
    if name in presets():
        text = (resources.files("flows.settings") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
        return _mapping(text, f"preset {name}")
    if Path(name).suffix in (".yaml", ".yml"):
        return read_yaml(Path(name))
    raise UserError("no such preset", where="--preset", expected=f"{', '.join(presets())}, or a YAML file", found=name)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a settings file.

    Raises:
        UserError: If it is missing, not YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "fedscene settings --preset demo --out params.yaml writes one"
        raise UserError("cannot read the settings file", where=path, found=error, hint=hint) from error
    if not text.strip():  # `fedscene settings > params.yaml` empties the file before it is read
        hint = "use fedscene settings --out FILE to write a settings file; restore this one from git if it was emptied"
        raise UserError("the settings file is empty", where=path, hint=hint)
    return _mapping(text, str(path))


def _mapping(text: str, where: str) -> dict[str, Any]:
    try:
        value = parse_yaml(text)
    except YamlTextError as error:
        raise UserError("the settings are not valid YAML", where=where, found=error) from error
    if value is None:  # nothing but comments
        return {}
    if not isinstance(value, dict):
        raise UserError("settings must be a mapping of sections", where=where, found=type(value).__name__)
    return value


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Return ``section.key=value`` texts as dotted name -> value, the value read as YAML.

    Raises:
        UserError: If one has no ``=`` or its value is not YAML.
    """
    out: dict[str, Any] = {}
    for text in overrides:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise UserError("not an override", where="--set", expected="section.key=value", found=text)
        try:
            out[key.strip()] = parse_yaml(value)
        except YamlTextError as error:
            hint = f"quote it twice, for the shell and for YAML: --set \"{key}='{value}'\"" if len(value) < 40 else None
            raise UserError("the value is not valid YAML", where=f"--set {key}", found=value, hint=hint) from error
    return out


def load_settings(
    params: Path | None = None, preset: Sequence[str] = (), overrides: Sequence[str] = (), where: str = ""
) -> Settings:
    """Return the effective settings: defaults, then the file, then the presets in order, then the overrides.

    Args:
        params: A settings file; without one and without presets, ``params.yaml`` if it exists here.
        preset: Names of shipped presets or paths of YAML files.
        overrides: ``section.key=value`` texts.
        where: Text that an error names instead of the sources.

    Raises:
        UserError: If a key is unknown, a value has the wrong type, or settings contradict each other.
    """
    if params is None and not preset and Path("params.yaml").exists():
        params = Path("params.yaml")
    sources = [(str(params), read_yaml(params))] if params else []
    sources += [(f"preset {name}", load_preset(name)) for name in preset]
    sources += [("--set", nested(parse_overrides(overrides)))] if overrides else []
    values: dict[str, Any] = {}
    for source, given in sources:
        refuse_old_names(given, source)
        values = merge(values, given)
    return validate(values, where or ", ".join(source for source, _ in sources) or "defaults")
