"""Raw data under version control: copied to ``data/raw/<name>`` and given to DVC."""

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
IGNORE = "data/raw/.gitignore"  # written by DVC: git must not take the data themselves
OLD = ".old"  # in INCOMING: what is there now, while DVC takes what replaces it
INCOMING = ".incoming"  # in RAW, so that the last step is a rename; git and DVC ignore it
NOT_VERSIONED = frozenset({".git", ".hg", ".dvc"})  # DVC passes over them wherever they are
NAMED = 5  # files named in an error

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Added:
    """What ``add`` did.

    Attributes:
        path: Where the data are, relative to the repository.
        pointer: The small file that git keeps in their place.
        change: ``new``, ``changed`` or ``same``.
        md5: DVC's sum over the data.
        files: Files under version control.
        left_out: Files that DVC does not take, by a ``.dvcignore``.
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
    """Puts a file or folder under ``data/raw`` and under version control.

    What is in ``data/raw/<name>`` already is replaced only when it came from the same ``source`` (or with
    ``replace``) and DVC holds it as it is, so that it can be brought back.

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
            "A link cannot be versioned", where=target, hint=f"fedscene data add {shlex.quote(str(source))}"
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


def plan(root: Path, source: Path, name: str | None = None) -> str:
    """Where ``add`` would put the source, relative to the repository; raises for a source or name that it refuses."""
    check_repository(root)
    return (RAW / _names(root, source, name)[0]).as_posix()


def _names(root: Path, source: Path, name: str | None) -> tuple[str, Path]:
    """The name below ``data/raw``, and the source as an absolute path."""
    if not source.exists():
        raise UserError("No such file or folder", where=source)
    raw = (root / RAW).resolve()
    held = Path(os.path.abspath(source))  # noqa: PTH100  keeps links
    source = held if held.parent == raw else held.resolve()
    if source == raw or source in raw.parents:
        raise UserError("This folder contains data/raw itself", where=source, expected="a folder of images")
    if raw in source.parents and source.parent != raw:
        whole = RAW / source.relative_to(raw).parts[0]
        raise UserError("This is a part of raw data", where=source, hint=f"fedscene data add {shlex.quote(str(whole))}")
    if source.parent == raw and name not in (None, source.name):
        raise UserError("These data have a name already", where=source, found=f"--name {name}")
    name = name or source.name
    if (
        not re.fullmatch(r"\w[\w .+()-]{0,99}", name)
        or name.endswith(".dvc")
        or name.casefold() == "readme.md"
        or not is_portable(name)
    ):
        expected = "up to 100 letters, digits or any of _ . + - ( ), not ending in .dvc"
        raise UserError("Not a name for raw data", where="--name", expected=expected, found=visible_name(name))
    return name, source


def _origin(root: Path, source: Path) -> str:
    """Tells sources apart; a digest, as paths of somebody's machine do not belong into git."""
    base = root.resolve()
    path = source.relative_to(base) if base in source.parents else source
    return hashlib.sha256(path.as_posix().encode()).hexdigest()[:16]


def _files(source: Path, seen: tuple[str, ...] = ()) -> Iterator[Path]:
    """Every file, also behind links, but not git's own; a dangling link and a link to a folder above count as files.

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
        raise UserError("A folder cannot be read", where=source, found=error.strerror) from error
    for entry in entries:
        if entry.name not in NOT_VERSIONED:
            yield from _files(entry, (*seen, real))


def _check_readable(files: Sequence[Path], source: Path) -> None:
    """DVC ends at the first file that it cannot read; here all of them are named before anything is copied."""
    if not files:
        raise UserError("There are no files in it", where=source)
    bad = [str(file) for file in files if not (file.is_file() and os.access(file, os.R_OK))]
    if bad:
        more = f"\n    and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        found = "\n    ".join(["", *bad[:NAMED]]) + more
        hint = "mend or remove them; nothing was added"
        raise UserError("Files cannot be read (rights, a dangling link, no plain file)", found=found, hint=hint)


def _check_replaceable(root: Path, name: str, origin: str, replace: bool) -> None:
    """Only what DVC holds is replaced, and only by a new state of the same data unless ``replace``."""
    target, pointer = root / RAW / name, root / RAW / f"{name}.dvc"
    if not pointer.is_file():
        if os.path.lexists(target):
            hint = f"fedscene data add {shlex.quote(str(RAW / name))} adds that, or give another --name"
            raise UserError("There are other data of this name", where=target, hint=hint)
        return
    known = _pointer(pointer).get("meta", {}).get("origin")
    if known != origin and not replace:
        hint = "another --name, or --replace to make these a new version of those"
        found = "data that came from another path" if known else "data that were added in place"
        raise UserError("There are other data of this name", where=target, found=found, hint=hint)
    state = changed_outs(root, [str(RAW / f"{name}.dvc")]).get((RAW / name).as_posix())
    if state not in (None, "deleted"):
        hint = f"fedscene data add {shlex.quote(str(RAW / name))} makes a version of what is there now; then add again"
        raise UserError("What is there would be lost", where=target, found=f"{state}, says DVC", hint=hint)


def changed_outs(root: Path, targets: Sequence[str]) -> dict[str, str]:
    """Path -> ``modified``, ``deleted``, ``new`` or ``not in cache``, for what is not as DVC recorded it.

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
    # Of what is neither in the cache nor here DVC says "not in cache"
    return {path: state if (root / path).exists() else "deleted" for path, state in states.items()}


@contextlib.contextmanager
def _incoming(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """An empty folder beside the data, one process at a time; and the names that a killed one gave back."""
    folder = root / RAW / INCOMING
    with locked(root / RAW, "adds data", file=root / ".dvc" / "tmp" / "fedscene-add.lock"):
        try:
            back = _put_back(root)
            shutil.rmtree(folder, ignore_errors=True)  # what else a killed one left
            folder.mkdir(parents=True)
            yield folder, back
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
    """The new data take the place of the old ones; back again if DVC refuses."""
    target, old = root / RAW / name, folder / OLD / name
    written = (root / IGNORE, root / RAW / f"{name}.dvc")  # by DVC, before it may fail
    small = {file: file.read_bytes() if file.is_file() else None for file in written}
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
        for file, content in small.items():
            file.unlink(missing_ok=True) if content is None else write_bytes(file, content)
        raise


def recover(root: Path) -> list[str]:
    """Raw data that an ``add`` had moved aside when it was killed return to their place; returns their names."""
    if not (root / RAW / INCOMING).exists():
        return []
    with _incoming(root) as (_, back):  # waits for an add that is going on
        return back


def _put_back(root: Path) -> list[str]:
    back = []
    for old in sorted((root / RAW / INCOMING / OLD).glob("*")):
        if not os.path.lexists(root / RAW / old.name):
            old.replace(root / RAW / old.name)
            back.append(old.name)
    return back


def _pointer(file: Path) -> dict[str, Any]:
    try:
        return dict(parse_yaml(file.read_text(encoding="utf-8"), unique_keys=False))
    except (TypeError, ValueError) as error:
        raise UserError("The .dvc file cannot be read", where=file, found=error, hint=f"git checkout {file}") from error


def _out(file: Path) -> dict[str, Any]:
    return dict(_pointer(file)["outs"][0])


def _md5(file: Path) -> str | None:
    return str(_out(file)["md5"]) if file.is_file() else None
