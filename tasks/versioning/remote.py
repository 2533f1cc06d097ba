"""Where versions of the data are kept besides this machine: DVC's default remote."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import UserError
from tasks.versioning.dvc import check_repository, run_dvc
from tasks.versioning.versions import recorded

NAME = "storage"
EXTRAS = {"s3": "fedscene[s3]", "ssh": "fedscene[ssh]"}  # scheme -> what to install; others come from DVC itself


@dataclass(frozen=True)
class Remote:
    """A DVC remote.

    Attributes:
        name: Its name in ``.dvc/config``.
        url: A folder, ``s3://bucket/path``, ``ssh://user@host/path``, or what else DVC knows.
    """

    name: str
    url: str


def default_remote(root: Path) -> Remote | None:
    """The remote that push and pull use, if one is set."""
    check_repository(root)
    name = "".join(run_dvc(root, ["config", "core.remote"])[-1:])
    return Remote(name, run_dvc(root, ["config", f"remote.{name}.url"])[-1]) if name else None


def set_remote(root: Path, url: str, name: str = NAME) -> Remote:
    """Makes ``url`` the default remote, in ``.dvc/config``, which git keeps.

    Raises:
        UserError: If the address holds a password, DVC does not know its kind, or a package for it is missing.
    """
    check_repository(root)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise UserError("Not a name for a remote", where="--name", expected="letters, digits, _ or -", found=name)
    if _password(url):
        hint = f"leave it out, then: dvc remote modify --local {name} password ..."
        raise UserError("A password does not belong into .dvc/config, which git keeps", hint=hint)
    _check_installed(url)
    run_dvc(root, ["remote", "add", "--force", "--default", name, url])
    return default_remote(root) or Remote(name, url)


def push(root: Path) -> tuple[Remote, int]:
    """Sends what DVC tracks here (raw data and outputs of stages) to the remote; returns how many files were new.

    Raises:
        UserError: If no remote is set, it cannot be reached, or files are neither here nor there.
    """
    remote = _required(root)
    lines = run_dvc(root, ["push"])
    missing = [line for line in lines if line.startswith("md5: ")]
    if missing:  # DVC itself warns, and calls it a success
        found = f"{len(missing)} files, the first {missing[0]}"
        hint = "fedscene data pull, or fedscene data add / dvc repro where the data still are"
        raise UserError("Data are neither in DVC's cache nor at the remote", where=remote.url, found=found, hint=hint)
    return remote, _count(lines, "pushed")


def pull(root: Path) -> tuple[Remote, int]:
    """Brings what ``dvc.lock`` and the ``.dvc`` files name from the remote; returns how many files were fetched.

    Raises:
        UserError: If no remote is set, it cannot be reached or lacks files, or local changes would be lost.
    """
    remote = _required(root)
    targets = recorded(root)  # by name, as DVC fails for stages that never ran
    return remote, _count(run_dvc(root, ["pull", *targets]), "fetched") if targets else 0


def _required(root: Path) -> Remote:
    remote = default_remote(root)
    if remote is None:
        hint = "fedscene data remote URL (a folder, s3://bucket/path or ssh://user@host/path)"
        raise UserError("No remote is set", where=root.resolve() / ".dvc" / "config", hint=hint)
    _check_installed(remote.url)
    return remote


def _check_installed(url: str) -> None:
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in EXTRAS and importlib.util.find_spec(f"dvc_{scheme}") is None:
        hint = f"pip install '{EXTRAS[scheme]}'"
        raise UserError(f"The package dvc-{scheme} is missing", where=url, hint=hint)


def _password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return False  # no address; DVC will say so


def _count(lines: list[str], what: str) -> int:
    """The number in DVC's "3 files pushed"; none when it says that everything is up to date."""
    found = re.search(rf"(\d+) files? {what}", "\n".join(lines))
    return int(found[1]) if found else 0
