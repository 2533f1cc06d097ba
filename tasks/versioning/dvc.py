"""DVC: run a stage, record outputs, name the version of the data. No other module calls the program.

DVC is called as a program, as its Python API is not stable. One call at a time per repository, as DVC gives up after
three seconds when another call holds its lock.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files import edit_text
from tasks.core.locks import locked
from tasks.core.yaml_text import parse_yaml
from tasks.versioning.git import run_git
from tasks.versioning.repository import check_repository
from tasks.versioning.yaml_keys import set_key

DATA_STAGES = ("ingest", "partition")
LOCK_TIMEOUT_S = 120.0
MAX_QUOTED_LINES = 15  # of a failed call's output in an error


def repro(
    root: Path,
    stage: str,
    single: bool = True,
    echo: Callable[[str], None] | None = None,
    wait: float = LOCK_TIMEOUT_S,
    force: bool = False,
) -> bool:
    """Run a stage if its dependencies, parameters or outputs changed: ``dvc repro``.

    Args:
        root: The repository's root, where ``dvc.yaml`` is.
        stage: The stage's name.
        single: Run this stage only; otherwise also the stages that it depends on.
        echo: Called with every line that DVC and the stage print.
        wait: Seconds to wait for another DVC call of this repository.
        force: Run although DVC sees no change, for instance because the source is outside the repository.

    Returns:
        Whether what ``dvc.lock`` records of the pipeline changed: the stage ran, or its outputs came from DVC's cache.

    Raises:
        UserError: If the folder is no DVC repository, the stage fails, or another call does not end in time.
    """
    before = _locked_stages(root)
    options = [*(["--single-item"] if single else []), *(["--force"] if force else [])]
    run_dvc(root, ["repro", *options, stage], echo, wait)
    return _locked_stages(root) != before


def commit(root: Path, stages: Sequence[str], wait: float = LOCK_TIMEOUT_S) -> None:
    """Record the present dependencies, parameters and outputs of stages, so that ``dvc repro`` has nothing to do.

    Raises:
        UserError: As in ``repro``.
    """
    run_dvc(root, ["commit", "--force", *stages], None, wait)


def data_version(root: Path, stages: Sequence[str] = DATA_STAGES) -> str | None:
    """Return the version of the stages' outputs: 32 hex digits over the paths and md5 sums in ``dvc.lock``.

    It is ``None`` if there is no ``dvc.lock`` or a stage is not in it.

    Raises:
        UserError: If ``dvc.lock`` cannot be read.
    """
    return derive_version(_locked_stages(root), stages)


def derive_version(locked: Mapping[str, Any], stages: Sequence[str] = DATA_STAGES) -> str | None:
    """Return the ``data_version`` of the stages of a ``dvc.lock``, as ``parse_lock`` returns them."""
    if not stages or not all(stage in locked for stage in stages):
        return None
    outs = [(out["path"], str(out.get("md5"))) for stage in stages for out in locked[stage].get("outs", [])]
    return hashlib.sha256(json.dumps(sorted(outs)).encode()).hexdigest()[:32]


def git_commit(root: Path) -> str | None:
    """Return the commit that is checked out; ``None`` outside git, without git, or before the first commit."""
    return run_git(root, "rev-parse", "--verify", "--quiet", "HEAD")


def git_dirty(root: Path) -> bool | None:
    """Return whether files that git tracks differ from the commit; ``None`` outside git.

    Untracked files do not count: the pipeline's outputs are untracked until they are committed.
    """
    status = run_git(root, "status", "--porcelain", "--untracked-files=no")
    return None if status is None else bool(status)


def write_params(
    path: Path, changes: Mapping[str, Any], create: bool = False, order: Mapping[str, Any] | None = None
) -> bool:
    """Set dotted keys in a YAML file, as ``dvc exp run -S`` does; comments, order and quotes stay.

    Args:
        path: The file, ``params.yaml``.
        changes: Dotted key -> plain value, as ``{"train.lr": 0.05}``.
        create: Whether a missing key is added; otherwise it is an error, as it may be a typing error.
        order: A nested mapping with all keys in the order in which a missing one is placed; default: at the end.

    Returns:
        Whether the file changed.

    Raises:
        UserError: If the file is missing or no YAML mapping, or a key is not in it.
    """
    if not path.is_file():
        raise UserError("the parameter file is missing", where=path)
    old = path.read_text(encoding="utf-8")
    new = edited_params(old, changes, path, create, order)
    edit_text(path, new)
    return new != old


def edited_params(
    old: str, changes: Mapping[str, Any], path: Path, create: bool = False, order: Mapping[str, Any] | None = None
) -> str:
    """Return the text that ``write_params`` writes; the path is for errors."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.util import load_yaml_guess_indent

    editor = YAML()
    editor.preserve_quotes = True
    # Written as null, as it was: the round trip would leave the place empty and every such line changed
    editor.representer.add_representer(
        type(None), lambda maker, _: maker.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    editor.width = 10_000  # or long lines would be folded
    try:
        tree, indent, offset = load_yaml_guess_indent(old, yaml=editor)
    except YAMLError as error:
        raise UserError("the parameter file is not valid YAML", where=path, found=str(error)) from error
    tree = CommentedMap() if tree is None else tree
    for key, value in changes.items():
        set_key(tree, key, value, path, create, order)
    step = re.search(r"^( +)[^\s#-]", old, re.MULTILINE)
    editor.indent(mapping=len(step[1]) if step else 2, sequence=indent or 2, offset=offset or 0)
    text = io.StringIO()
    editor.dump(tree, text)
    return text.getvalue()


def nested_changes(present: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted key -> value that turn ``present`` into ``wanted``; a mapping that loses keys is set as a whole."""
    out: dict[str, Any] = {}
    for key, value in wanted.items():
        old = present.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and value and set(old) <= set(value):
            out |= nested_changes(old, value, f"{prefix}{key}.")
        elif key not in present or old != value:
            out[f"{prefix}{key}"] = value
    return out


def _locked_stages(root: Path) -> dict[str, Any]:
    path = root / "dvc.lock"
    return parse_lock(path.read_bytes(), path) if path.is_file() else {}


def parse_lock(content: bytes, where: object) -> dict[str, Any]:
    """Return stage name -> its entry in a ``dvc.lock``.

    Raises:
        UserError: If it is not a lock file.
    """
    try:
        return dict((parse_yaml(content.decode(), unique_keys=False) or {}).get("stages") or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError("dvc.lock cannot be read", where=where, found=error, hint="git checkout dvc.lock") from error


def _environment() -> dict[str, str]:
    """Return this process's environment without DVC's telemetry, with this interpreter's programs first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1", "PYTHONUNBUFFERED": "1"}


def run_dvc(
    root: Path,
    arguments: Sequence[str],
    echo: Callable[[str], None] | None = None,
    wait: float = LOCK_TIMEOUT_S,
) -> list[str]:
    """Run ``dvc`` with these arguments and return the lines that it printed.

    Args:
        root: The repository's root.
        arguments: Command and options.
        echo: Called with every line.
        wait: Seconds to wait for another DVC call of this repository.

    Raises:
        UserError: If the folder is no DVC repository, the call fails, or another one does not end in time.
    """
    check_repository(root)
    lines: list[str] = []
    folder, doing = root / ".dvc" / "tmp", f"runs dvc {' '.join(arguments)}"
    refusal, hint = f"another DVC call is still running after {wait:g} s", "wait for it, or end that process"
    with (
        locked(folder, doing, wait_s=wait, refusal=refusal, hint=hint, file=folder / "fedscene.lock"),
        subprocess.Popen(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=root,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                if echo:
                    echo(lines[-1])
        except BaseException:
            # An interrupt must not leave DVC, or the stage that it started, running
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode:
        raise _failure(root, arguments, process.returncode, lines)
    return lines


def _failure(root: Path, arguments: Sequence[str], code: int, lines: Sequence[str]) -> UserError:
    """Return the user error that the stage reported; else an error with the end of DVC's output."""
    reported = UserError.from_lines(lines) if arguments[0] == "repro" else None
    if reported is not None:
        named = re.search(r"failed to reproduce '([^']+)'", "\n".join(lines))
        what = f"DVC's stage {named[1] if named else arguments[-1]}: {reported.what}"
        return UserError(
            what, where=reported.where, expected=reported.expected, found=reported.found, hint=reported.hint
        )
    return UserError(
        f"dvc {' '.join(arguments)} failed",
        where=root.resolve(),
        found="\n    ".join([f"exit code {code}", *lines[-MAX_QUOTED_LINES:]]),
    )
