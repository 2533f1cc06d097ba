"""Whether DVC and git can work in a folder; if not, the reason and what helps."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

from models.errors import UserError
from tasks.versioning.git import git_error, run_git

ALTERNATIVE = "or fedscene run, which needs neither git nor DVC"


def check_repository(root: Path) -> None:
    """Refuse a folder in which DVC cannot work.

    Raises:
        UserError: If ``root`` is not the top of a DVC repository within git that has a ``dvc.yaml``, or git or DVC is
            missing or fails. Every cause has its own message.
    """
    if importlib.util.find_spec("dvc") is None:
        raise UserError("DVC is not installed here", hint=f"pip install dvc, {ALTERNATIVE}")
    top = run_git(root, "rev-parse", "--show-toplevel")
    if top is None:
        raise _without_git(root)
    if not (root / ".dvc").is_dir():
        raise _without_dvc(root, Path(top))
    if not (root / "dvc.yaml").is_file():
        hint = "copy the files that docs/pipeline.md names"
        raise UserError("the repository has no pipeline", where=root.resolve(), expected="a file dvc.yaml", hint=hint)


def is_shallow(root: Path) -> bool:
    """Return whether this clone lacks a part of the history."""
    return run_git(root, "rev-parse", "--is-shallow-repository") == "true"


def _without_git(root: Path) -> UserError:
    """Return the reason why git does not tell which repository this is."""
    where = root.resolve()
    if shutil.which("git") is None:
        return UserError("git is not installed, or not on PATH", where=where, hint=f"install git, {ALTERNATIVE}")
    message = git_error(root, "rev-parse", "--show-toplevel")
    if "dubious ownership" in message:
        named = re.search(r"repository at '([^'\n]+)'", message)
        folder = named[1] if named else where
        return UserError(
            "git refuses this repository, as it belongs to another user",
            where=folder,
            found=f"owner {_owner(Path(folder))}, and you are {_name(os.geteuid())}",
            hint=f"git config --global --add safe.directory '{folder}'",
        )
    if "must be run in a work tree" in message:
        hint = "git clone it, and work in the clone"
        return UserError("a bare git repository has no files to work on", where=where, hint=hint)
    if os.environ.get("GIT_DIR"):
        return UserError("git finds no repository where GIT_DIR points", where=os.environ["GIT_DIR"], found=message)
    if "not a git repository" in message and not _git_above(where):
        return _no_repository(root)
    hint = "fix what git reports; a fresh clone helps if .git itself is damaged"
    return UserError("git cannot read the repository here", where=where, found=message or "nothing", hint=hint)


def _no_repository(root: Path) -> UserError:
    """Return the error for a missing git repository; with a folder ``.dvc`` it was copied without its ``.git``."""
    if not (root / ".dvc").is_dir():
        return UserError("not a git repository", where=root.resolve(), hint=f"git init && dvc init, {ALTERNATIVE}")
    config = root / ".dvc" / "config"
    without_git = config.is_file() and re.search(
        r"no_scm\s*=\s*true", config.read_text(errors="replace"), re.IGNORECASE
    )
    hint = "git init" + (" && dvc config --unset core.no_scm" if without_git else "") + f", {ALTERNATIVE}"
    found = "a DVC repository without git (from an archive, or made with --no-scm)"
    return UserError("not a git repository", where=root.resolve(), found=found, hint=hint)


def _without_dvc(root: Path, top: Path) -> UserError:
    here = root.resolve()
    above = next((folder for folder in here.parents if (folder / ".dvc").is_dir() and _within(folder, top)), None)
    if above is not None and (above / "dvc.yaml").is_file():
        return UserError("this is a subfolder of a DVC repository, not its top", where=here, hint=f"cd '{above}'")
    hint = "dvc init" if top.resolve() == here else "dvc init --subdir"
    return UserError("not a DVC repository", where=here, expected="a folder .dvc", hint=hint)


def _within(folder: Path, top: Path) -> bool:
    return folder == top.resolve() or top.resolve() in folder.parents


def _git_above(where: Path) -> Path | None:
    """Return a ``.git`` here or above, which git should have been able to read."""
    ceilings = {Path(text) for text in os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep) if text}
    for folder in (where, *where.parents):
        if folder in ceilings and folder != where:
            return None
        if os.path.lexists(folder / ".git"):
            return folder / ".git"
    return None


def _owner(folder: Path) -> str:
    try:
        return _name(folder.stat().st_uid)
    except OSError:
        return "unknown"


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # containers have users without a name
        return str(uid)
