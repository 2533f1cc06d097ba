"""A folder in which DVC or git cannot work: each cause has its message and remedy."""

import importlib.util
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from models.errors import UserError
from tasks.versioning import dvc, versions
from tasks.versioning.dvc import check_repository
from tests.support.projects import git

CONFIG = "[core]\n    analytics = false\n"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.delenv("GIT_DIR", raising=False)


@pytest.fixture
def repository(tmp_path):
    """A git and DVC repository."""
    root = tmp_path / "repository"
    (root / ".dvc").mkdir(parents=True)
    (root / ".dvc" / "config").write_text(CONFIG)
    (root / "dvc.yaml").write_text("stages: {}\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    return root


def refusal(root: Path) -> UserError:
    with pytest.raises(UserError) as raised:
        check_repository(root)
    assert len(str(raised.value).splitlines()) <= 6
    return raised.value


def test_another_owners_repository_is_refused_with_a_remedy(repository, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    error = refusal(repository)
    assert "another user" in error.what and "git init" not in str(error)
    done = subprocess.run(shlex.split(error.hint), check=False)
    assert done.returncode == 0
    check_repository(repository)  # the remedy works


def test_git_or_dvc_missing(repository, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dvc" else found(name))
    assert "DVC is not installed" in refusal(repository).what
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    error = refusal(repository)
    assert "git is not installed" in error.what and "git init" not in str(error) and "fedscene run" in error.hint


def test_from_an_archive_the_hint_is_git_init(repository):
    shutil.rmtree(repository / ".git")
    error = refusal(repository)
    assert "archive" in error.found and error.hint.startswith("git init, ") and "dvc init" not in error.hint
    git(repository, "init", "-q")
    check_repository(repository)
    shutil.rmtree(repository / ".git")
    (repository / ".dvc" / "config").write_text("[core]\n    no_scm = True\n")
    assert "git init && dvc config --unset core.no_scm" in refusal(repository).hint
    shutil.rmtree(repository / ".dvc")
    assert "git init && dvc init" in refusal(repository).hint


def test_bare_damaged_and_wrongly_addressed_repositories_are_refused(repository, tmp_path, monkeypatch):
    git(tmp_path, "clone", "-q", "--bare", str(repository), "bare")
    assert "bare" in refusal(tmp_path / "bare").what
    (tmp_path / "bare.git").mkdir()
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", str(tree))
    check_repository(tree)  # a worktree is sound
    shutil.rmtree(repository / ".git" / "worktrees")
    error = refusal(tree)
    assert "cannot read" in error.what and "worktrees/tree" in error.found and "git init" not in error.hint
    (repository / ".git" / "HEAD").write_text("")
    assert "cannot read" in refusal(repository).what
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    error = refusal(repository)
    assert "GIT_DIR" in error.what and error.where == str(tmp_path / "nowhere")


def test_the_error_in_a_subfolder_names_the_top(repository):
    (repository / "data" / "raw").mkdir(parents=True)
    assert refusal(repository / "data" / "raw").hint == f"cd '{repository}'"
    (repository / "dvc.yaml").unlink()
    assert "no pipeline" in refusal(repository).what and "docs/pipeline.md" in refusal(repository).hint


def test_sound_but_unusual_states_pass(repository, tmp_path):
    git(repository, "checkout", "-q", "--detach")
    (repository / ".git" / "index.lock").write_text("")
    check_repository(repository)
    assert dvc.git_commit(repository) and dvc.git_dirty(repository) is False
    assert versions.versions(repository) == []
    (repository / ".git" / "index.lock").unlink()
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    check_repository(tmp_path / "shallow")
    with pytest.raises(UserError, match="git fetch --unshallow"):
        versions.find_version(tmp_path / "shallow", "0123abcd")
    assert os.environ["GIT_CEILING_DIRECTORIES"]
