"""The version of the running code, for reports and run records."""

from functools import cache
from pathlib import Path

from flows.run.fingerprint import whole_code_digest
from tasks.versioning import dvc
from tasks.versioning.git import run_git


@cache
def code_version() -> str:
    """Return one line: the commit of the checkout and whether it has changes, and the digest of the source code.

    An installed copy has no commit, even if it is inside another repository.
    """
    root = Path(__file__).resolve().parents[2]
    digest = f"sources that decide results {whole_code_digest()[:12]}"
    top = run_git(root, "rev-parse", "--show-toplevel")
    commit = dvc.git_commit(root) if top is not None and Path(top).resolve() == root else None
    if commit is None:
        return f"no commit (an installed copy), {digest}"
    return f"commit {commit[:12]}{' with changes' if dvc.git_dirty(root) else ''}, {digest}"
