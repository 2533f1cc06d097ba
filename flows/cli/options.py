"""Options that commands share, and the parsing of lists in options."""

from pathlib import Path
from typing import Annotated, Any

import typer

from models.errors import UserError

Params = Annotated[str | None, typer.Option("--params", help="Settings file; default: params.yaml if it exists here.")]
Presets = Annotated[
    list[str] | None, typer.Option("--preset", "-p", help="Shipped preset or YAML file; may be repeated.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", "-s", help="section.key=value; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
RunId = Annotated[str | None, typer.Option("--run-id", help="Name of the run's folder; default: derived.")]


def effective_settings(params: str | None, presets: list[str] | None, overrides: list[str] | None) -> Any:
    """Return the effective settings of a command."""
    from flows.settings.files import load_settings

    return load_settings(Path(params) if params else None, presets or (), overrides or ())


def parse_names(text: str | None) -> list[str]:
    """Return the names of ``A,B``."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def parse_seeds(text: str | None) -> list[int] | None:
    """Return the seeds of ``7,8,9``, ``None`` without any.

    Raises:
        UserError: If they are not whole numbers, or one appears twice.
    """
    if text is None:
        return None
    found = parse_names(text)
    numbers = all(part.isascii() and part.isdigit() for part in found)
    if not found or not numbers or len({int(part) for part in found}) < len(found):
        raise UserError("not seeds", where="--seeds", expected="different whole numbers: 1,2,3", found=text)
    return [int(part) for part in found]
