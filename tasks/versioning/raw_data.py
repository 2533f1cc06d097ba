"""Raw data under version control: copied to ``data/raw/<name>`` and added to DVC."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.files import write_bytes
from tasks.core.locks import locked
from tasks.core.names import is_portable, visible_name
from tasks.core.yaml_text import parse_yaml
from tasks.versioning.dvc import check_repository, run_dvc, write_params

RAW = Path("data/raw")
IGNORE = "data/raw/.gitignore"  # written by DVC: git must not track the data themselves
OLD = ".old"  # in INCOMING: the present data, while DVC adds their replacement
INCOMING = ".incoming"  # in RAW, so that the last step is a rename; git and DVC ignore it
NOT_VERSIONED = frozenset({".git", ".hg", ".dvc"})  # DVC ignores them in any folder
MAX_NAMED = 5  # files named in an error

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Added:
    """The result of ``add``.

    Attributes:
        path: Where the data are, relative to the repository.
        pointer: The small file that git tracks in their place.
        change: ``new``, ``changed`` or ``same``.
        md5: DVC's sum over the data.
        files: Files under version control.
        left_out: Files that DVC ignores because of a ``.dvcignore``.
    """

    path: str
    pointer: str
    change: str
    md5: str
    files: int
    left_out: int


def add(
    root: Path,
    source: Path,
    name: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Added:
    """Copy a file or folder to ``data/raw`` and put it under version control.

    Present data in ``data/raw/<name>`` are replaced only if they came from the same ``source`` (or with ``replace``)
    and DVC has them unmodified, so that they can be restored.

    Args:
        root: The repository's root.
        source: The raw data, in the repository or elsewhere; or ``data/raw/<name>`` itself, edited in place.
        name: Name below ``data/raw``; default: that of ``source``.
        replace: Whether other data of this name become an earlier version.
        progress: Called with the numbers of copied and of all files.

    Raises:
        UserError: If the source cannot be read completely, the name is taken, or DVC fails.
    """
    check_repository(root)
    name, source = _names(root, source, name)
    target, pointer = root / RAW / name, root / RAW / f"{name}.dvc"
    if target.is_symlink():
        raise UserError(
            "a link cannot be versioned", where=target, hint=f"fedscene data add {shlex.quote(str(source))}"
        )
    in_place = source == target.absolute()
    files = list(_files(source))
    _check_readable(files, source)
    with _incoming(root) as (folder, _):
        before = _md5(pointer)
        if in_place:
            run_dvc(root, ["add", str(RAW / name)])
        else:
            _check_replaceable(root, name, _origin(root, source), replace)
            _copy(files, source, folder / name, progress)
            _swap(root, folder, name)
            write_params(pointer, {"meta.origin": _origin(root, source)}, create=True)
    out = _out(pointer)
    taken = int(out.get("nfiles", 1))
    change = "new" if before is None else "same" if before == out["md5"] else "changed"
    return Added(
        (RAW / name).as_posix(), (RAW / f"{name}.dvc").as_posix(), change, out["md5"], taken, len(files) - taken
    )


def planned_path(root: Path, source: Path, name: str | None = None) -> str:
    """Return where ``add`` would copy the source, relative to the repository; raise if it would refuse it."""
    check_repository(root)
    return (RAW / _names(root, source, name)[0]).as_posix()


def _names(root: Path, source: Path, name: str | None) -> tuple[str, Path]:
    """Return the name below ``data/raw``, and the source as an absolute path."""
    if not source.exists():
        raise UserError("no such file or folder", where=source)
    raw = (root / RAW).resolve()
    unresolved = Path(os.path.abspath(source))  # noqa: PTH100  keeps links
    source = unresolved if unresolved.parent == raw else unresolved.resolve()
    if source == raw or source in raw.parents:
        raise UserError("this folder contains data/raw itself", where=source, expected="a folder of images")
    if raw in source.parents and source.parent != raw:
        whole = RAW / source.relative_to(raw).parts[0]
        raise UserError("this is a part of raw data", where=source, hint=f"fedscene data add {shlex.quote(str(whole))}")
    if source.parent == raw and name not in (None, source.name):
        raise UserError("these data have a name already", where=source, found=f"--name {name}")
    name = name or source.name
    if (
        not re.fullmatch(r"\w[\w .+()-]{0,99}", name)
        or name.endswith(".dvc")
        or name.casefold() == "readme.md"
        or not is_portable(name)
    ):
        expected = "up to 100 letters, digits or any of _ . + - ( ), not ending in .dvc"
        raise UserError("invalid name for raw data", where="--name", expected=expected, found=visible_name(name))
    return name, source


def _origin(root: Path, source: Path) -> str:
    """Return a digest that identifies the source; paths of the user's machine must not go into git."""
    base = root.resolve()
    path = source.relative_to(base) if base in source.parents else source
    return hashlib.sha256(path.as_posix().encode()).hexdigest()[:16]


def _files(source: Path, seen: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield every file, also behind links, except git's; a dangling link or a link to a parent folder counts as a file.

    Raises:
        UserError: If a folder cannot be listed.
    """
    real = os.path.realpath(source)
    if not source.is_dir() or real in seen:
        yield source
        return
    try:
        entries = sorted(source.iterdir())
    except OSError as error:
        raise UserError("a folder cannot be read", where=source, found=error.strerror) from error
    for entry in entries:
        if entry.name not in NOT_VERSIONED:
            yield from _files(entry, (*seen, real))


def _check_readable(files: Sequence[Path], source: Path) -> None:
    """Refuse unreadable files, all at once and before anything is copied; DVC would stop at the first one."""
    if not files:
        raise UserError("there are no files in it", where=source)
    bad = [str(file) for file in files if not (file.is_file() and os.access(file, os.R_OK))]
    if bad:
        more = f"\n    and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
        found = "\n    ".join(["", *bad[:MAX_NAMED]]) + more
        hint = "fix or remove them; nothing was added"
        raise UserError("files cannot be read (permissions, dangling links, special files)", found=found, hint=hint)


def _check_replaceable(root: Path, name: str, origin: str, replace: bool) -> None:
    """Refuse to replace data that DVC does not have, or other data unless ``replace``."""
    target, pointer = root / RAW / name, root / RAW / f"{name}.dvc"
    if not pointer.is_file():
        if os.path.lexists(target):
            hint = f"fedscene data add {shlex.quote(str(RAW / name))} adds that, or give another --name"
            raise UserError("there are other data of this name", where=target, hint=hint)
        return
    known = _pointer(pointer).get("meta", {}).get("origin")
    if known != origin and not replace:
        hint = "another --name, or --replace to make these a new version of those"
        found = "data that came from another path" if known else "data that were added in place"
        raise UserError("there are other data of this name", where=target, found=found, hint=hint)
    state = changed_outs(root, [str(RAW / f"{name}.dvc")]).get((RAW / name).as_posix())
    if state not in (None, "deleted"):
        hint = f"fedscene data add {shlex.quote(str(RAW / name))} makes a version of the present data; then add again"
        raise UserError("the present data would be lost", where=target, found=f"{state}, according to DVC", hint=hint)


def changed_outs(root: Path, targets: Sequence[str]) -> dict[str, str]:
    """Return path -> ``modified``, ``deleted``, ``new`` or ``not in cache`` for what differs from DVC's record.

    Args:
        root: The repository's root.
        targets: Stages or ``.dvc`` files.
    """
    if not targets:
        return {}
    lines = run_dvc(root, ["status", "--json", *targets])
    status = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    changes = [entry for entries in status.values() for entry in entries if isinstance(entry, dict)]
    states = {path: state for entry in changes for path, state in entry.get("changed outs", {}).items()}
    # DVC also reports "not in cache" for what is not here either
    return {path: state if (root / path).exists() else "deleted" for path, state in states.items()}


@contextlib.contextmanager
def _incoming(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield an empty folder beside the data, one process at a time, and the names restored after a killed one."""
    folder = root / RAW / INCOMING
    with locked(root / RAW, "adds data", file=root / ".dvc" / "tmp" / "fedscene-add.lock"):
        try:
            restored = _restore_old(root)
            shutil.rmtree(folder, ignore_errors=True)  # other files of a killed one
            folder.mkdir(parents=True)
            yield folder, restored
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _copy(files: Sequence[Path], source: Path, target: Path, progress: Progress | None) -> None:
    for number, file in enumerate(files, 1):
        to = target / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, to)
        if progress and (number % 100 == 0 or number == len(files)):
            progress(number, len(files))


def _swap(root: Path, folder: Path, name: str) -> None:
    """Replace the old data by the new ones; restore the old ones if DVC fails."""
    target, old = root / RAW / name, folder / OLD / name
    written = (root / IGNORE, root / RAW / f"{name}.dvc")  # by DVC, before it may fail
    before = {file: file.read_bytes() if file.is_file() else None for file in written}
    if target.exists():
        old.parent.mkdir()
        target.replace(old)
    (folder / name).replace(target)
    try:
        run_dvc(root, ["add", str(RAW / name)])
    except BaseException:  # an interrupt too
        target.replace(folder / name)
        if old.exists():
            old.replace(target)
        for file, content in before.items():
            file.unlink(missing_ok=True) if content is None else write_bytes(file, content)
        raise


def recover(root: Path) -> list[str]:
    """Restore raw data that a killed ``add`` had moved aside; return their names."""
    if not (root / RAW / INCOMING).exists():
        return []
    with _incoming(root) as (_, restored):  # waits for a running add
        return restored


def _restore_old(root: Path) -> list[str]:
    restored = []
    for old in sorted((root / RAW / INCOMING / OLD).glob("*")):
        if not os.path.lexists(root / RAW / old.name):
            old.replace(root / RAW / old.name)
            restored.append(old.name)
    return restored


def _pointer(file: Path) -> dict[str, Any]:
    try:
        return dict(parse_yaml(file.read_text(encoding="utf-8"), unique_keys=False))
    except (TypeError, ValueError) as error:
        raise UserError("the .dvc file cannot be read", where=file, found=error, hint=f"git checkout {file}") from error


def _out(file: Path) -> dict[str, Any]:
    return dict(_pointer(file)["outs"][0])


def _md5(file: Path) -> str | None:
    return str(_out(file)["md5"]) if file.is_file() else None
