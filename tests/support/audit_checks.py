"""A fixture that calls ``fedscene data check``."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app

LOOSE = ("--set", "ingest.max_bad_share=1")


@pytest.fixture
def check(tmp_path, monkeypatch):
    """``check(path, *options) -> (exit code, what --json prints)``."""
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # without a params.yaml

    def call(path, *options):
        done = CliRunner().invoke(app, ["data", "check", str(path), "--json", *map(str, options)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        return done.exit_code, json.loads(done.stdout)

    return call


def files_below(root):
    return sorted((Path(at) / name).relative_to(root).as_posix() for at, _, names in os.walk(root) for name in names)
