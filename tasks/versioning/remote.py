"""DVC's default remote: where versions of the data are stored besides this machine."""

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
        url: A folder, ``s3://bucket/path``, ``ssh://user@host/path``, or another kind that DVC supports.
    """

    name: str
    url: str


def default_remote(root: Path) -> Remote | None:
    """Return the remote that push and pull use, ``None`` if none is set."""
    check_repository(root)
    name = "".join(run_dvc(root, ["config", "core.remote"])[-1:])
    return Remote(name, run_dvc(root, ["config", f"remote.{name}.url"])[-1]) if name else None


def set_remote(root: Path, url: str, name: str = NAME) -> Remote:
    """Make ``url`` the default remote, in ``.dvc/config``, which git tracks.

    Raises:
        UserError: If the URL contains a password, DVC does not support its kind, or a package for it is missing.
    """
    check_repository(root)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise UserError("invalid name for a remote", where="--name", expected="letters, digits, _ or -", found=name)
    if _password(url):
        hint = f"leave it out, then: dvc remote modify --local {name} password ..."
        raise UserError("a password must not be stored in .dvc/config, which git tracks", hint=hint)
    _check_installed(url)
    run_dvc(root, ["remote", "add", "--force", "--default", name, url])
    return default_remote(root) or Remote(name, url)


def push(root: Path) -> tuple[Remote, int]:
    """Send the files that DVC tracks here (raw data and outputs of stages) to the remote; return how many were new.

    Raises:
        UserError: If no remote is set, it cannot be reached, or files are neither here nor at the remote.
    """
    remote = _required(root)
    lines = run_dvc(root, ["push"])
    missing = [line for line in lines if line.startswith("md5: ")]
    if missing:  # DVC itself only warns
        found = f"{len(missing)} files, the first {missing[0]}"
        hint = "fedscene data pull, or fedscene data add / dvc repro where the data still exist"
        raise UserError("data are neither in DVC's cache nor at the remote", where=remote.url, found=found, hint=hint)
    return remote, _count(lines, "pushed")


def pull(root: Path) -> tuple[Remote, int]:
    """Fetch the files that ``dvc.lock`` and the ``.dvc`` files name from the remote; return how many were fetched.

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
        raise UserError("no remote is set", where=root.resolve() / ".dvc" / "config", hint=hint)
    _check_installed(remote.url)
    return remote


def _check_installed(url: str) -> None:
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in EXTRAS and importlib.util.find_spec(f"dvc_{scheme}") is None:
        hint = f"pip install '{EXTRAS[scheme]}'"
        raise UserError(f"the package dvc-{scheme} is missing", where=url, hint=hint)


def _password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None
    except ValueError:
        return False  # not a URL; DVC reports it


def _count(lines: list[str], what: str) -> int:
    """Return the number in DVC's "3 files pushed"; 0 if everything is up to date."""
    found = re.search(rf"(\d+) files? {what}", "\n".join(lines))
    return int(found[1]) if found else 0
