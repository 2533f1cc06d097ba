"""A random sample of the kills of ``make torture``: a killed and restarted run gives the same result."""

import json
import sys

import pytest

from tests.support.projects import ROOT, command

pytestmark = pytest.mark.integration


def test_a_killed_and_restarted_run_gives_the_same_result(migrated, tmp_path):
    tool = ROOT / "tests" / "torture"
    options = ["--phases", "data", "rounds", "--sample", "2", "--seed", "9", "--database", migrated, "--out", tmp_path]
    done = command(tmp_path, sys.executable, str(tool), *map(str, options), check=False, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    trials = json.loads((tmp_path / "torture.json").read_text())
    assert [(trial["phase"], trial["method"]) for trial in trials] == [
        *[("data", "fedavg")] * 2,
        *[("rounds", "fedavg")] * 2,
        *[("rounds", "moon")] * 2,
    ]
    assert "6 kills" in (tmp_path / "torture.txt").read_text()
