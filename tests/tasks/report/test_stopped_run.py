"""The report of a run that ended before its last round."""

import json

import pytest

from tasks.core.run_end import RunEnd, write_end
from tasks.core.store import Store
from tasks.report.report import ReportSettings, build_report, requested_rounds
from tests.support.fabricated import fabricated_run

REASON = "val_macro_ap has not become better than 0.5 in round 2 for 2 evaluations"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of five rounds that was stopped after the fourth; plots take a second, so none are drawn."""
    monkeypatch.setattr("tasks.report.report.write_plots", lambda *_: {})
    fabricated_run(tmp_path / "r", 5)
    write_end(Store(tmp_path / "r"), RunEnd(4, REASON, {"patience": 2}))
    return tmp_path / "r"


def test_the_report_ends_with_the_last_round_and_says_why(run):
    build_report(run, run / "report", ReportSettings(images=0))
    assert f"| stopped | {REASON} |" in (run / "report/report.md").read_text()
    assert json.loads((run / "report/metrics.json").read_text())["rounds"] == 4


def test_fewer_rounds_than_that_are_reported_without_a_reason(run):
    build_report(run, run / "report", ReportSettings(images=0), rounds=3)
    assert "stopped" not in (run / "report/report.md").read_text()
    assert json.loads((run / "report/metrics.json").read_text())["rounds"] == 3
    assert (requested_rounds(run, 3), requested_rounds(run, 9), requested_rounds(run)) == (3, 4, 4)


def test_a_run_that_went_on_has_no_reason(run):
    write_end(Store(run), None)
    build_report(run, run / "report", ReportSettings(images=0))
    assert "stopped" not in (run / "report/report.md").read_text()
