"""Restore a version of the data without losing the present one."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files import remove
from tasks.core.yaml_text import parse_yaml
from tasks.versioning.dvc import DATA_STAGES, edited_params, nested_changes, run_dvc
from tasks.versioning.git import run_git
from tasks.versioning.raw_data import IGNORE, RAW, changed_outs
from tasks.versioning.remote import default_remote
from tasks.versioning.rollback import undoable
from tasks.versioning.versions import (
    LOCK,
    PARAMS,
    Record,
    Version,
    commit_record,
    committed_params,
    present_record,
    recorded,
)

DATA_KEYS = ("seed", "ingest", "partition")  # of params.yaml: what dvc.yaml's data stages depend on


Translate = Callable[[Mapping[str, Any]], dict[str, Any]]


def restore(
    root: Path,
    version: Version,
    check: Callable[[dict[str, Any]], object] | None = None,
    note: Callable[[str], object] = str,
    translate: Translate = dict,
) -> None:
    """Restore raw data, the outputs that the version's ``dvc.lock`` names, and keys of ``params.yaml``.

    Code and other settings stay, and nothing is committed. Files come from DVC's cache, else from the remote; if the
    data are in neither, everything is rolled back. A model or report that is in neither is left out: ``dvc repro``
    makes it again.

    Args:
        root: The repository's root.
        version: One that has a commit.
        check: Called with the new content of ``params.yaml`` before anything is changed; raises if the settings are
            invalid.
        note: Called with a line for what was rolled back.
        translate: Returns committed settings with the present names of those that were renamed since.

    Raises:
        UserError: If something would be lost that no commit or cache has, or the data are nowhere.
    """
    assert version.commit, "only a committed version can be restored"
    now, then = present_record(root), commit_record(root, version.commit)
    if now.version.key == then.version.key:
        _fetch(root, now)
        return
    paths = sorted({*now.pointers, *then.files, LOCK, IGNORE} - {PARAMS})
    old = {path: _content(root / path) for path in paths}
    new = {path: then.files.get(path) for path in paths}
    _check_committed(root, [path for path in paths if old[path] is not None and old[path] != new[path]])
    settings, changes = restored_settings(root, now, then, translate)
    if check and changes:
        check(settings)
    _check_held(root)
    if changes:
        new[PARAMS] = edited_params(now.files[PARAMS].decode(), changes, root / PARAMS, create=True).encode()
    with undoable(root, "fedscene data restore", note) as change:
        change(new, whole=True)
        _fetch(root, then)
        for name in set(now.version.raw) - set(then.version.raw):
            remove(root / RAW / name)  # raw data that the version did not have; DVC has them


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _check_committed(root: Path, paths: list[str]) -> None:
    """Check that the present content of every file is in some commit."""
    lost = [path for path in paths if not _in_a_commit(root, path)]
    if lost:
        hint = f"git add {shlex.join(lost)} && git commit, or git checkout the files to discard"
        raise UserError("uncommitted changes would be lost", found=", ".join(lost), hint=hint)


def _in_a_commit(root: Path, path: str) -> bool:
    blob = run_git(root, "hash-object", "--", path)
    return bool(
        blob and run_git(root, "log", "--all", "HEAD", "-1", "--format=%H", f"--find-object={blob}", "--", path)
    )


def _check_held(root: Path) -> None:
    """Check that DVC has everything that will be replaced."""
    changed = changed_outs(root, recorded(root))
    lost = {path: state for path, state in changed.items() if state != "deleted"}
    if lost:
        raw = [path for path in lost if Path(path).parent == RAW]
        hint = (
            f"fedscene data add {shlex.quote(raw[0])}, and commit"
            if raw
            else "dvc repro, dvc commit, or delete the files to discard"
        )
        found = ", ".join(f"{path} ({state})" for path, state in lost.items())
        raise UserError("data that DVC does not have would be lost", found=found, hint=hint)


def restored_settings(
    root: Path, now: Record, then: Record, translate: Translate
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the new content of ``params.yaml``, and the dotted keys that change."""
    if PARAMS not in now.files or PARAMS not in then.files:
        return {}, {}
    present, wanted = (parse_yaml(record.files[PARAMS], unique_keys=False) or {} for record in (now, then))
    wanted = _data_keys(translate(wanted))
    changes = nested_changes(present, wanted)
    if changes and not any(_data_keys(present) == _data_keys(translate(params)) for params in committed_params(root)):
        hint = f"git add {PARAMS} && git commit, or git checkout {PARAMS}"
        found = ", ".join(changes)
        raise UserError("uncommitted settings of the data would be lost", where=PARAMS, found=found, hint=hint)
    return present | wanted, changes


def _data_keys(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in DATA_KEYS if key in params}


def _fetch(root: Path, record: Record) -> None:
    """Fetch the files that ``dvc.lock`` and the pointers name from the cache or the remote."""
    data = [*record.pointers, *(stage for stage in DATA_STAGES if stage in record.stages)]
    try:
        run_dvc(root, ["checkout", *data])
    except UserError as error:
        remote = default_remote(root)
        if remote is None:
            hint = "fedscene data remote URL sets a remote that may have them"
            raise UserError("DVC's cache lacks these data", found=error.found, hint=hint) from error
        try:
            run_dvc(root, ["fetch", *data])
            run_dvc(root, ["checkout", *data])
        except UserError as second:
            what = "DVC's cache lacks these data, and they cannot be fetched from the remote"
            raise UserError(what, where=remote.url, found=second.found) from second
    run_dvc(root, ["checkout", "--allow-missing"])
