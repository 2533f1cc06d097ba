"""Find the folder of a run and read the settings it was made with."""

import re
from pathlib import Path

from flows.run.lock import LOCK
from flows.settings.renames import current_names
from flows.settings.schema import Settings, validate
from models.errors import UserError
from tasks.core.names import is_portable, visible_name
from tasks.core.store import Store

_TAKEN = frozenset({"data", "mlartifacts", "audit", "tables"})  # other names in the folder of runs


def checked_id(run_id: str, where: str = "--run-id") -> str:
    """Return a run's id, the name of its folder in the folder of runs, if it is valid.

    Raises:
        UserError: If it is not a name that every file system accepts, or is reserved.
    """
    taken = run_id.casefold().startswith("mlflow.db") or run_id.casefold() in _TAKEN
    if not re.fullmatch(r"\w[\w.-]{0,99}", run_id) or not is_portable(run_id) or taken:
        raise UserError(
            "not a valid run id",
            where=where,
            expected="up to 100 letters, digits, '_', '-' or '.', not starting with '.' or '-' nor ending with '.'; "
            f"not {', '.join(sorted(_TAKEN))} or a name that Windows reserves, such as con",
            found=visible_name(run_id)[:120],
        )
    return run_id


def find_run(root: Path, run_id: str | None) -> Path:
    """Return the folder of a run, by default of the one used last.

    Raises:
        UserError: If there is no such run.
    """
    runs = sorted(root.glob("*/run.json"), key=lambda path: _last_used(path.parent))
    names = [path.parent.name for path in runs]
    if not names:
        raise UserError("no run yet", where=root, hint="fedscene run --preset tiny")
    if run_id is not None and run_id not in names:
        raise UserError(
            "no such run",
            where=root,
            expected=", ".join(reversed(names[-10:])),
            found=visible_name(run_id)[:120],
        )
    return root / (run_id or names[-1])


def _last_used(run: Path) -> float:
    """Return when a run was last opened: the time of its lock; for a run copied without it, when it started."""
    lock = run / LOCK
    return (lock if lock.exists() else run / "run.json").stat().st_mtime


def read_run(root: Path) -> Settings:
    """Return the settings that a run was last opened with; names of an earlier release are translated.

    Raises:
        UserError: If they cannot be read, or the run was made by a later release.
    """
    store = Store(root)
    if store.exists("run.json"):
        store.read_json("run.json")  # refuses a later release, whose settings are unknown here
    return validate(current_names(store.read_json("settings.json")), str(root))
