"""Tables, the reproduction report and runs name the version of the code that made them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.papers.fidelity.page import ABOUT_COSINE
from flows.run.code_version import code_version
from flows.run.fingerprint import whole_code_digest
from flows.run.open import write_run_metadata
from flows.settings.schema import Settings
from tasks.core.store import Store
from tasks.versioning.git import run_git

ROOT = Path(__file__).parents[2]


def test_the_code_version_of_a_checkout_is_its_commit_and_source_digest():
    commit = run_git(ROOT, "rev-parse", "HEAD")
    assert code_version().startswith(f"commit {commit[:12]}" if commit else "no commit")
    assert code_version().endswith(f"sources that decide results {whole_code_digest()[:12]}")


def test_an_installed_copy_inside_another_repository_has_no_commit(tmp_path):
    for floor in ("flows", "tasks", "models"):
        shutil.copytree(ROOT / floor, tmp_path / "lib" / floor, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for words in (["add", "lib/flows/run/code_version.py"], ["commit", "-q", "-m", "other"]):
        own = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *own, *words], check=True, capture_output=True)
    code = "from flows.run.code_version import code_version; print(code_version())"
    options = {"cwd": tmp_path / "lib", "env": os.environ | {"PYTHONPATH": str(tmp_path / "lib")}}
    done = subprocess.run([sys.executable, "-c", code], **options, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no commit (an installed copy), sources that decide results ")


@pytest.mark.parametrize("table", range(1, 7))
def test_shipped_tables_name_the_commit_that_made_them(table):
    page = (ROOT / "docs" / "results" / f"fmman-table{table}-small" / "table.md").read_text()
    assert re.search(r"^\| code \| commit [0-9a-f]{12}", page, re.MULTILINE)
    assert "the initial weights" in page


def test_the_claims_page_no_longer_shows_the_collapse_figure_measured_with_noise():
    page = (ROOT / "docs" / "fidelity-fmman.md").read_text()
    section = page.partition("## Whether the label features collapse")[2]
    assert "without eq 7's noise" in section and "without eq 7's noise" in ABOUT_COSINE
    assert "| cabinet, seed 7 | 0.351 | 0.214 |" not in section
    assert re.search(r"^Made with the code of commit [0-9a-f]{7}|Code: commit", page, re.MULTILINE)


def test_a_run_keeps_the_version_of_the_code_that_started_it(tmp_path, monkeypatch):
    monkeypatch.setattr("flows.run.open.unusable", lambda _: {})
    store, settings = Store(tmp_path), Settings()
    context = SimpleNamespace(fingerprint="f", classes=("a",), kind="multi_label", dataset="d", clients="c")
    run = SimpleNamespace(id="r", context=context, data_digest="x")
    write_run_metadata(store, settings, run)
    assert store.read_json("run.json")["code"] == code_version()
    store.write_json("run.json", store.read_json("run.json") | {"code": "commit 0123"})
    write_run_metadata(store, settings, run)
    assert store.read_json("run.json")["code"] == "commit 0123"
    store.write_json("run.json", {"run_id": "r"})  # of an earlier release
    write_run_metadata(store, settings, run)
    assert "code" not in store.read_json("run.json")
