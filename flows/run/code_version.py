"""Which code makes a result, for pages that outlive it."""

from functools import cache
from pathlib import Path

from flows.run.fingerprint import whole_code_digest
from tasks.versioning import dvc
from tasks.versioning.git import run_git


@cache
def code_version() -> str:
    """In one line: the commit of the checkout that runs and whether it was changed, and the digest of what decides.

    An installed copy has no commit, also where it lies within some other repository.
    """
    root = Path(__file__).resolve().parents[2]
    digest = f"sources that decide results {whole_code_digest()[:12]}"
    top = run_git(root, "rev-parse", "--show-toplevel")
    commit = dvc.git_commit(root) if top is not None and Path(top).resolve() == root else None
    if commit is None:
        return f"no commit (an installed copy), {digest}"
    return f"commit {commit[:12]}{' with changes' if dvc.git_dirty(root) else ''}, {digest}"
