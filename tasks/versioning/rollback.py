"""Taking back what a failed or killed command changed: settings, ``dvc.lock``, outputs that left the workspace.

Before a command changes anything it writes down how things were, in ``.dvc/tmp``, which git ignores. If it fails, it
puts them back; if it is killed, the next command that changes the repository does.
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
MAX_KEPT = 4 << 20  # bytes of one small output that are kept

Note = Callable[[str], object]
Content = bytes | None


@dataclass
class Journal:
    """How things were.

    Attributes:
        what: The command, for messages.
        began: When, as text.
        before: Path -> content of the files that the command itself changes; None for no file.
        after: Path -> what it makes of them.
        kept: Path -> content of ``dvc.lock`` and of the small outputs that DVC's cache does not hold.
        outs: Path -> what tells a state of an output in DVC's cache from another one; None for no output.
        whole: Whether all that the repository's ``.dvc`` files and ``dvc.lock`` name is brought back.
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
    """One command at a time that changes settings and outputs; what it changed is taken back if it fails.

    Args:
        root: The repository's root.
        what: The command, for messages.
        note: Called with a line for what was taken back.

    Yields:
        ``change(files, whole=False)``: writes down how things are, then writes these files (path -> content, None to
        remove). It is called once, before anything is changed.

    Raises:
        UserError: If another such command is running, or what a killed one left cannot be taken back.
    """
    lock = root / JOURNAL.parent / "fedscene-undo.lock"
    refusal = "another command is changing this repository"
    with locked(root.resolve(), f"runs {what}", wait_s=0, refusal=refusal, file=lock):
        _undo_leftover(root, note)
        try:
            yield lambda files, whole=False: _change(root, what, files, whole)
        except BaseException:  # an interrupt too
            _undo_failed(root, note)
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
        _put(root / path, content)


def _undo_failed(root: Path, note: Note) -> None:
    """After a failure, whose own error says more than what goes wrong here."""
    journal = _read(root)
    if journal is None:
        return
    try:
        _tell(_take_back(root, journal), "taken back", note)
    except (UserError, OSError) as error:
        note(f"not everything could be taken back; the next run tries again: {error}")


def _undo_leftover(root: Path, note: Note) -> None:
    """What a killed command left, unless somebody has made it right since."""
    journal = _read(root)
    if journal is None:
        return
    if _settled(root, journal):
        (root / JOURNAL).unlink()
        return
    try:
        done = _take_back(root, journal)
    except UserError as error:
        hint = f"mend that, or rm '{(root / JOURNAL).resolve()}' to leave things as they are"
        what = f"What '{journal.what}' left, killed after {journal.began}, cannot be taken back"
        raise UserError(what, found=error, hint=hint) from error
    _tell(done, f"'{journal.what}', begun {journal.began}, was killed; taken back", note)


def _settled(root: Path, journal: Journal) -> bool:
    """Whether the changed files were committed since, or DVC has nothing to do with them: then they are wanted."""
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


def _take_back(root: Path, journal: Journal) -> list[str]:
    """Puts everything back and forgets the journal; returns what was put back, and what was not with the reason."""
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
        _put(root / path, before)
        done.append(path)
    whole = not edited and journal.before != journal.after
    recorded = _sums(_content(root / LOCK)), _sums(journal.kept.get(LOCK))
    for path, before in journal.kept.items():
        now = _content(root / path)
        # With the user's own settings what a stage has newly recorded is wanted
        made_anew = path == LOCK or recorded[0].get(path) != recorded[1].get(path)
        if now != before and (whole or now is None or not made_anew):
            _put(root / path, before)
    gone = [path for path, state in journal.outs.items() if state is not None and _state(root / path) != state]
    if journal.whole and whole:
        run_dvc(root, ["checkout", "--allow-missing"])
    elif gone:
        run_dvc(root, ["checkout", "--force", "--allow-missing", *gone])
    for path, before in journal.before.items():
        if whole and before is None and journal.outs.get(path.removesuffix(".dvc"), ()) is None:
            remove(root / path.removesuffix(".dvc"))  # came with the pointer that was there for a while
    for path in gone:
        there = os.path.lexists(root / path)
        done.append(path if there else f"not {path}, which DVC's cache lacks (dvc repro makes it)")
    (root / JOURNAL).unlink()
    return done


def _tell(done: Sequence[str], how: str, note: Note) -> None:
    if done:
        note(f"{how}: {', '.join(done)}")


def _put(file: Path, content: Content) -> None:
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
    """Path -> sum of every output that a ``dvc.lock`` records."""
    stages = parse_lock(lock, LOCK) if lock else {}
    return {out["path"]: out.get("md5") for stage in stages.values() for out in stage.get("outs", [])}


def _outputs(root: Path) -> tuple[list[str], list[str]]:
    """Paths of the stages' outputs that ``dvc.lock`` records: those in DVC's cache, and those that are not."""
    paths = list(_sums(_content(root / LOCK)))
    stages = (parse_yaml((root / "dvc.yaml").read_bytes(), unique_keys=False) or {}).get("stages") or {}
    entries = [
        entry for stage in stages.values() for key in ("outs", "metrics", "plots") for entry in stage.get(key, [])
    ]
    own = {
        path for entry in entries if isinstance(entry, dict) for path, of in entry.items() if not of.get("cache", True)
    }
    return [path for path in paths if path not in own], [path for path in paths if path in own]


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
