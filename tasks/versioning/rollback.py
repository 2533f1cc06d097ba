"""Roll back what a failed or killed command changed: settings, ``dvc.lock``, outputs that left the workspace.

Before a command changes anything it writes a journal of the previous state to ``.dvc/tmp``, which git ignores. If it
fails, it rolls back; if it is killed, the next command that changes the repository does.
"""

import base64
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files import edit_text, remove, write_bytes
from tasks.core.json_files import damaged, read_json, write_json
from tasks.core.locks import locked
from tasks.core.yaml_text import parse_yaml
from tasks.versioning.dvc import parse_lock, run_dvc
from tasks.versioning.git import git_files

JOURNAL = Path(".dvc/tmp/fedscene-undo.json")
LOCK = "dvc.lock"
MAX_KEPT = 4 << 20  # bytes of one small output in the journal

Note = Callable[[str], object]
Content = bytes | None


@dataclass
class Journal:
    """The state before a command.

    Attributes:
        what: The command, for messages.
        began: Its start time, as text.
        before: Path -> content of the files that the command itself changes; ``None`` for no file.
        after: Path -> their new content.
        kept: Path -> content of ``dvc.lock`` and of the small outputs that are not in DVC's cache.
        outs: Path -> inode and time of an output in DVC's cache; ``None`` for no output.
        whole: Whether everything that the repository's ``.dvc`` files and ``dvc.lock`` name is restored.
    """

    what: str
    began: str
    before: dict[str, Content] = field(default_factory=dict)
    after: dict[str, Content] = field(default_factory=dict)
    kept: dict[str, Content] = field(default_factory=dict)
    outs: dict[str, list[int] | None] = field(default_factory=dict)
    whole: bool = False


@contextlib.contextmanager
def undoable(root: Path, what: str, note: Note) -> Iterator[Callable[..., None]]:
    """Run one command at a time that changes settings and outputs; roll back its changes if it fails.

    Args:
        root: The repository's root.
        what: The command, for messages.
        note: Called with a line for what was rolled back.

    Yields:
        ``change(files, whole=False)``: writes the journal, then these files (path -> content, ``None`` to remove). It
        is called once, before anything is changed.

    Raises:
        UserError: If another such command is running, or the changes of a killed one cannot be rolled back.
    """
    lock = root / JOURNAL.parent / "fedscene-undo.lock"
    refusal = "another command is changing this repository"
    with locked(root.resolve(), f"runs {what}", wait_s=0, refusal=refusal, file=lock):
        _roll_back_killed(root, note)
        try:
            yield lambda files, whole=False: _change(root, what, files, whole)
        except BaseException:  # an interrupt too
            _roll_back_failed(root, note)
            raise
        (root / JOURNAL).unlink(missing_ok=True)


def _change(root: Path, what: str, files: Mapping[str, Content], whole: bool) -> None:
    journal = Journal(f"{what} (process {os.getpid()})", time.strftime("%Y-%m-%d %H:%M:%S"), whole=whole)
    journal.before = {path: _content(root / path) for path in files}
    journal.after = dict(files)
    cached, small = _outputs(root)
    raw = [path.removesuffix(".dvc") for path in files if path.endswith(".dvc")]
    journal.outs = {path: _state(root / path) for path in (*cached, *raw)}
    journal.kept = {path: _content(root / path) for path in (LOCK, *small) if path not in files}
    journal.kept = {path: data for path, data in journal.kept.items() if data is None or len(data) <= MAX_KEPT}
    _write(root, journal)
    for path, content in files.items():
        _write_content(root / path, content)


def _roll_back_failed(root: Path, note: Note) -> None:
    """Roll back after a failure, whose error must not be hidden by one of the rollback."""
    journal = _read(root)
    if journal is None:
        return
    try:
        _note_done(_roll_back(root, journal), "rolled back", note)
    except (UserError, OSError) as error:
        note(f"not everything could be rolled back; the next run tries again: {error}")


def _roll_back_killed(root: Path, note: Note) -> None:
    """Roll back the changes of a killed command, unless the user has accepted them since."""
    journal = _read(root)
    if journal is None:
        return
    if _is_accepted(root, journal):
        (root / JOURNAL).unlink()
        return
    try:
        done = _roll_back(root, journal)
    except UserError as error:
        hint = f"fix that, or rm '{(root / JOURNAL).resolve()}' to keep the present state"
        what = f"the changes of '{journal.what}', started {journal.began} and killed, cannot be rolled back"
        raise UserError(what, found=error, hint=hint) from error
    _note_done(done, f"'{journal.what}', started {journal.began}, was killed; rolled back", note)


def _is_accepted(root: Path, journal: Journal) -> bool:
    """Return whether the changed files were committed since, or DVC is up to date with them."""
    changed = [path for path, content in journal.after.items() if content != journal.before[path]]
    if not changed:
        return False
    committed = git_files(root, [f"HEAD:./{path}" for path in changed])
    if all(committed.get(f"HEAD:./{path}") == journal.after[path] for path in changed):
        return True
    if journal.whole or _content(root / LOCK) in (None, journal.kept.get(LOCK)):
        return False
    lines = run_dvc(root, ["status", "--json"])
    return json.loads(next((line for line in reversed(lines) if line.startswith("{")), "null")) == {}


def _roll_back(root: Path, journal: Journal) -> list[str]:
    """Restore everything and remove the journal; return what was restored, and what was not with the reason."""
    done: list[str] = []
    edited = False
    for path, before in journal.before.items():
        now = _content(root / path)
        if now == before:
            continue
        if now != journal.after[path]:
            edited = True
            done.append(f"not {path}, which was edited since")
            continue
        _write_content(root / path, before)
        done.append(path)
    whole = not edited and journal.before != journal.after
    recorded = _sums(_content(root / LOCK)), _sums(journal.kept.get(LOCK))
    for path, before in journal.kept.items():
        now = _content(root / path)
        # With the user's own settings, what a stage has newly recorded stays
        new_record = path == LOCK or recorded[0].get(path) != recorded[1].get(path)
        if now != before and (whole or now is None or not new_record):
            _write_content(root / path, before)
    gone = [path for path, state in journal.outs.items() if state is not None and _state(root / path) != state]
    if journal.whole and whole:
        run_dvc(root, ["checkout", "--allow-missing"])
    elif gone:
        run_dvc(root, ["checkout", "--force", "--allow-missing", *gone])
    for path, before in journal.before.items():
        if whole and before is None and journal.outs.get(path.removesuffix(".dvc"), ()) is None:
            remove(root / path.removesuffix(".dvc"))  # came with the pointer that is removed again
    for path in gone:
        exists = os.path.lexists(root / path)
        done.append(path if exists else f"not {path}, which DVC's cache lacks (dvc repro makes it)")
    (root / JOURNAL).unlink()
    return done


def _note_done(done: Sequence[str], how: str, note: Note) -> None:
    if done:
        note(f"{how}: {', '.join(done)}")


def _write_content(file: Path, content: Content) -> None:
    if content is None:
        file.unlink(missing_ok=True)
    elif _content(file) != content:
        if file.suffix == ".yaml":
            edit_text(file, content.decode())
        else:
            write_bytes(file, content)


def _content(file: Path) -> Content:
    return file.read_bytes() if file.is_file() else None


def _sums(lock: Content) -> dict[str, Any]:
    """Return path -> md5 of every output in a ``dvc.lock``."""
    stages = parse_lock(lock, LOCK) if lock else {}
    return {out["path"]: out.get("md5") for stage in stages.values() for out in stage.get("outs", [])}


def _outputs(root: Path) -> tuple[list[str], list[str]]:
    """Return the paths of the stages' outputs in ``dvc.lock``: those in DVC's cache, and the others."""
    paths = list(_sums(_content(root / LOCK)))
    stages = (parse_yaml((root / "dvc.yaml").read_bytes(), unique_keys=False) or {}).get("stages") or {}
    entries = [
        entry for stage in stages.values() for key in ("outs", "metrics", "plots") for entry in stage.get(key, [])
    ]
    uncached = {
        path for entry in entries if isinstance(entry, dict) for path, of in entry.items() if not of.get("cache", True)
    }
    return [path for path in paths if path not in uncached], [path for path in paths if path in uncached]


def _state(path: Path) -> list[int] | None:
    if not path.exists():
        return None
    found = path.stat()
    return [found.st_ino, found.st_mtime_ns]


def _write(root: Path, journal: Journal) -> None:
    values = asdict(journal)
    for name in ("before", "after", "kept"):
        values[name] = {
            path: None if data is None else base64.b64encode(data).decode() for path, data in values[name].items()
        }
    write_json(root / JOURNAL, values)


def _read(root: Path) -> Journal | None:
    file = root / JOURNAL
    if not file.is_file():
        return None
    hint = f"rm '{file.resolve()}', and see what git status and dvc status say"
    what = "the record of what to roll back"
    values = read_json(file, hint, what=what)
    try:
        for name in ("before", "after", "kept"):
            values[name] = {
                path: None if data is None else base64.b64decode(data) for path, data in values[name].items()
            }
        return Journal(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(file, error, hint, what) from error
