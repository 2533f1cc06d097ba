"""Runs that are there: the one that is meant, and the settings it was made with."""

import re
from pathlib import Path

from flows.run.lock import LOCK
from flows.settings.renames import current_names
from flows.settings.schema import Settings, validate
from models.errors import UserError
from tasks.core.names import is_portable, visible_name
from tasks.core.store import Store

_TAKEN = frozenset({"data", "mlartifacts", "audit", "tables"})  # what else lies in the folder of runs


def checked_id(run_id: str, where: str = "--run-id") -> str:
    """A run's id, which is the name of its folder in the folder of runs.

    Raises:
        UserError: If it is no plain name that every file system takes, or the name of something else there.
    """
    taken = run_id.casefold().startswith("mlflow.db") or run_id.casefold() in _TAKEN
    if not re.fullmatch(r"\w[\w.-]{0,99}", run_id) or not is_portable(run_id) or taken:
        raise UserError(
            "not a name for a run",
            where=where,
            expected="up to 100 letters, digits, '_', '-' or '.', not beginning with '.' or '-' nor ending with '.'; "
            f"not {', '.join(sorted(_TAKEN))} or what Windows reserves, such as con",
            found=visible_name(run_id)[:120],
        )
    return run_id


def find_run(root: Path, run_id: str | None) -> Path:
    """The folder of a run, or of the run that was worked on last.

    Raises:
        UserError: If there is no such run.
    """
    runs = sorted(root.glob("*/run.json"), key=lambda path: _worked_on(path.parent))
    names = [path.parent.name for path in runs]
    if not names:
        raise UserError("there is no run yet", where=root, hint="fedscene run --preset tiny")
    if run_id is not None and run_id not in names:
        raise UserError(
            "there is no such run",
            where=root,
            expected=", ".join(reversed(names[-10:])),
            found=visible_name(run_id)[:120],
        )
    return root / (run_id or names[-1])


def _worked_on(run: Path) -> float:
    """When a run was worked on last: its lock was taken then; of one that was copied without it, when it began."""
    lock = run / LOCK
    return (lock if lock.exists() else run / "run.json").stat().st_mtime


def read_run(root: Path) -> Settings:
    """The settings that a run's folder was last worked on with.

    Raises:
        UserError: If they cannot be read, or the run is of a later release.
    """
    store = Store(root)
    if store.exists("run.json"):
        store.read_json("run.json")  # its version is that of the settings
    return validate(current_names(store.read_json("settings.json")), str(root))
