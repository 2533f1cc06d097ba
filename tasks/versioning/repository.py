"""Whether DVC and git can work in a folder; if not, which of the many reasons it is, and what helps."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

from models.errors import UserError
from tasks.versioning.git import git_complaint, run_git

WITHOUT = "or fedscene run, which needs neither git nor DVC"


def check_repository(root: Path) -> None:
    """Refuses a folder in which DVC cannot work.

    Raises:
        UserError: If ``root`` is not the top of a DVC repository within git that has a ``dvc.yaml``, or git or DVC is
            missing or refuses. Every cause has its own message.
    """
    if importlib.util.find_spec("dvc") is None:
        raise UserError("DVC is not installed here", hint=f"pip install dvc, {WITHOUT}")
    top = run_git(root, "rev-parse", "--show-toplevel")
    if top is None:
        raise _without_git(root)
    if not (root / ".dvc").is_dir():
        raise _without_dvc(root, Path(top))
    if not (root / "dvc.yaml").is_file():
        hint = "copy the files that docs/pipeline.md names"
        raise UserError("The repository has no pipeline", where=root.resolve(), expected="a file dvc.yaml", hint=hint)


def is_shallow(root: Path) -> bool:
    """Whether this clone lacks a part of the history."""
    return run_git(root, "rev-parse", "--is-shallow-repository") == "true"


def _without_git(root: Path) -> UserError:
    """Why git does not say which repository this is."""
    where = root.resolve()
    if shutil.which("git") is None:
        return UserError("git is not installed, or not on PATH", where=where, hint=f"install git, {WITHOUT}")
    said = git_complaint(root, "rev-parse", "--show-toplevel")
    if "dubious ownership" in said:
        named = re.search(r"repository at '([^'\n]+)'", said)
        folder = named[1] if named else where
        return UserError(
            "git refuses this repository, as it belongs to another user",
            where=folder,
            found=f"owner {_owner(Path(folder))}, and you are {_name(os.geteuid())}",
            hint=f"git config --global --add safe.directory '{folder}'",
        )
    if "must be run in a work tree" in said:
        hint = "git clone it, and work in the clone"
        return UserError("A bare git repository holds no files to work on", where=where, hint=hint)
    if os.environ.get("GIT_DIR"):
        return UserError("git finds no repository where GIT_DIR points", where=os.environ["GIT_DIR"], found=said)
    if "not a git repository" in said and not _git_above(where):
        return _nowhere(root)
    hint = "what git says must be mended first; a fresh clone helps when .git itself is damaged"
    return UserError("git cannot read the repository here", where=where, found=said or "nothing", hint=hint)


def _nowhere(root: Path) -> UserError:
    """No git repository here; a folder ``.dvc`` says that it was copied or unpacked without its ``.git``."""
    if not (root / ".dvc").is_dir():
        return UserError("Not a git repository", where=root.resolve(), hint=f"git init && dvc init, {WITHOUT}")
    config = root / ".dvc" / "config"
    own = config.is_file() and re.search(r"no_scm\s*=\s*true", config.read_text(errors="replace"), re.IGNORECASE)
    hint = "git init" + (" && dvc config --unset core.no_scm" if own else "") + f", {WITHOUT}"
    found = "a DVC repository without git (from an archive, or made with --no-scm)"
    return UserError("Not a git repository", where=root.resolve(), found=found, hint=hint)


def _without_dvc(root: Path, top: Path) -> UserError:
    here = root.resolve()
    above = next((folder for folder in here.parents if (folder / ".dvc").is_dir() and _within(folder, top)), None)
    if above is not None and (above / "dvc.yaml").is_file():
        return UserError("This is a folder of a DVC repository, not its top", where=here, hint=f"cd '{above}'")
    hint = "dvc init" if top.resolve() == here else "dvc init --subdir"
    return UserError("Not a DVC repository", where=here, expected="a folder .dvc", hint=hint)


def _within(folder: Path, top: Path) -> bool:
    return folder == top.resolve() or top.resolve() in folder.parents


def _git_above(where: Path) -> Path | None:
    """A ``.git`` here or above, which git should have been able to read."""
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
