"""Runs that are there: the one that is meant, and the settings it was made with."""

from pathlib import Path

from flows.settings import Settings, validate
from models.errors import UserError
from tasks.store import Store


def find_run(root: Path, run_id: str | None) -> Path:
    """The folder of a run, or of the run that was worked on last.

    Raises:
        UserError: If there is no such run.
    """
    runs = sorted(root.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    names = [path.parent.name for path in runs]
    if not names:
        raise UserError("there is no run yet", where=root, hint="fedscene run --preset tiny")
    if run_id is not None and run_id not in names:
        raise UserError("there is no such run", where=root, expected=", ".join(reversed(names[-10:])), found=run_id)
    return root / (run_id or names[-1])


def read_run(root: Path) -> Settings:
    """The settings that a run's folder was last worked on with."""
    return validate(Store(root).read_json("settings.json"), str(root))
