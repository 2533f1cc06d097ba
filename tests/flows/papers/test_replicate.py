"""Tables that are run: which runs are made, which are reused, what is written."""

import copy
import json
import math

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.papers.fidelity.formulas import printed_average
from flows.papers.replicate.report import row_metrics
from flows.papers.replicate.run import make_plan, replicate, run_states
from flows.papers.replicate.tables import load_table
from flows.papers.replicate.write import page, write_table
from flows.run.code_version import code_version
from models.errors import UserError
from tasks.core.finished_rounds import finished_rounds
from tasks.core.records import RoundRecord
from tasks.core.store import Store
from tests.support.tables import TABLE, RowsDone, written

ROWS = TABLE["rows"] | {"Broken": {"presets": ["no-such-preset"], "note": "It cannot run."}}
OFF = ["tracking.enabled=false"]
pytestmark = [pytest.mark.slow, pytest.mark.figures]
runner = CliRunner()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table of three rows, one of which cannot run, made once: folder of the table, report, folder of the runs."""
    root = tmp_path_factory.mktemp("replicate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSCENE_RUNS", str(root / "runs"))
        patch.chdir(root)
        name = written(root, rows=ROWS, main=["FMMAN"])
        plan, progress = make_plan(load_table(name), "small", None, (), OFF), RowsDone()
        report = replicate(plan, root / "out", progress)
    assert progress.done == [("FedAvg", True), ("FMMAN", True), ("Broken", False)]
    return root, name, report


@pytest.fixture
def finished_table(made, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(made[0] / "runs"))
    monkeypatch.chdir(made[0])
    return made


def test_json_holds_every_run_at_equal_rounds_and_equal_epochs(made):
    root = made[0]
    held = json.loads((root / "out" / "table.json").read_text())
    assert [row["name"] for row in held["rows"]] == ["FedAvg", "FMMAN", "Broken"]
    single, double, broken = held["rows"]
    run = single["runs"][0]
    assert (run["at"]["rounds"]["round"], run["at"]["epochs"]["round"]) == (2, 4)
    assert double["runs"][0]["at"]["epochs"] is None and double["paper"] == [50, 40, 30, 20]
    record = RoundRecord.of(json.loads((root / "runs" / run["run_id"] / "rounds/0004/round.json").read_text()))
    assert run["at"]["epochs"]["metrics"]["macro_ap"] == record.metrics["macro_ap"]
    assert run["digest"] == record.model.digest and set(run["per_class"]) == set(held["data"]["classes"])
    assert run["bytes_down"] == 2 * run["at"]["rounds"]["bytes_down"] > 0 < run["seconds"]
    assert broken["runs"] == [] and "no such preset" in broken["failed"]
    assert held["data"]["images"]["train"] > 0 and held["settings"]["train.lr"] == 0.01
    assert "ingest.path" not in held["settings"]  # a folder of this machine
    # Rounds between the two points are not evaluated
    between = json.loads((root / "runs" / run["run_id"] / "rounds/0003/round.json").read_text())
    assert between["metrics"] == {}


def test_the_page_compares_our_results_with_the_papers_and_states_its_limits(made):
    root, _, report = made
    text = (root / "out" / "table.md").read_text()
    ours = 100 * report.rows[1].runs[0].rounds.metrics["macro_ap"]
    line = next(line for line in text.splitlines() if line.startswith("| FMMAN "))
    assert [cell.strip() for cell in line.split("|")][2:5] == [f"{ours:.2f}", f"{ours:.2f}", "50.00"]
    assert "Broken (failed)" in text and "no such preset" in text and "Broken: It cannot run." in text
    assert "Small." in text and "synthetic images" in text
    assert report.code == code_version() and f"| code | {report.code} |" in text
    assert {path.name for path in (root / "out").iterdir()} == {
        "table.md",
        "table.json",
        "precision-recall.png",
        "class-f1.png",
    }


def test_finished_runs_are_never_repeated(finished_table, monkeypatch):
    root, name, report = finished_table
    import flows.federate

    def must_not_run(*_, **__):
        raise AssertionError("a finished run was started again")

    monkeypatch.setattr(flows.federate, "federate", must_not_run)
    again = replicate(make_plan(load_table(name), "small", None, (), OFF), root / "again", RowsDone())
    assert [row.runs for row in again.rows] == [row.runs for row in report.rows]
    # Of rows that are not selected, finished runs are shown
    part = replicate(make_plan(load_table(name), "small", None, ["FedAvg"], OFF), root / "part", RowsDone())
    assert [len(row.runs) for row in part.rows] == [1, 1, 0]
    assert part.rows[2].failed is None


def test_a_dry_run_reports_the_state_of_every_run_and_writes_nothing(finished_table):
    root, name, _ = finished_table
    before = sorted(path.name for path in (root / "runs").iterdir())
    states = run_states(make_plan(load_table(name), "small", None, ["FMMAN"], OFF, [5, 6]))
    assert [(state.row, state.seed, state.rounds, state.of) for state in states[:4]] == [
        ("FedAvg", 5, 4, 4),
        ("FedAvg", 6, 0, 4),
        ("FMMAN", 5, 2, 2),
        ("FMMAN", 6, 0, 2),
    ]
    assert [state.selected for state in states] == [False, False, True, True, False, False]
    assert "no such preset" in states[4].failed
    assert sorted(path.name for path in (root / "runs").iterdir()) == before


def test_the_command_line_lists_runs_and_refuses(finished_table):
    root, name, _ = finished_table
    listed = json.loads(runner.invoke(app, ["replicate", "--list", "--json"]).stdout)
    assert "FMMAN_without_mask" in listed["fmman-table5"]["rows"]
    arguments = ["replicate", name, "--set", OFF[0], "--out", str(root / "cli")]
    assert "none, finished" in runner.invoke(app, [*arguments, "--dry-run"]).stdout
    done = runner.invoke(app, [*arguments, "--json"])
    assert done.exit_code == 1 and "failed rows (the page gives the reasons): Broken" in done.stderr
    assert json.loads(done.stdout)["rows"][0]["runs"][0]["seed"] == 5
    good = runner.invoke(app, [*arguments, "--rows", "FedAvg, FMMAN"])
    assert good.exit_code == 0 and "table.md" in good.stdout
    for wrong in (["--rows", "Nobody"], ["--seeds", "1,x"], ["--seeds", "1,1"], ["--scale", "huge"]):
        assert runner.invoke(app, [*arguments, *wrong]).exit_code == 2
    assert runner.invoke(app, ["replicate", "no-such-table"]).exit_code == 2


def test_a_row_may_not_change_the_images(finished_table):
    root, _, _ = finished_table
    rows = TABLE["rows"] | {"Other": {"settings": {"ingest": {"image_size": 48}}}}
    name = written(root, rows=rows)
    plan = make_plan(load_table(name), "small", None)
    assert [run.row for run in plan.runs if run.error] == ["Other"]
    assert "may not change" in str(plan.runs[2].error)
    with pytest.raises(UserError, match="no such row"):
        make_plan(load_table(name), "small", None, ["Nobody"])


def test_the_printed_average_of_eq_15_is_measured_without_a_write(finished_table):
    root, _, report = finished_table
    folder = root / "runs" / report.row("FMMAN").runs[0].run_id
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = printed_average(folder, finished_rounds(Store(folder), 2))
    assert all(abs(value - 1 / found.clients) < 0.1 for value in found.sums)
    assert found.metrics["macro_ap"] != found.printed["macro_ap"]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_text_of_a_table_file_is_escaped_and_nan_becomes_null(made, tmp_path):
    report = copy.deepcopy(made[2])
    report.rows[0].name = "a|b"
    report.rows[0].runs[0].rounds.metrics["macro_ap"] = math.nan
    assert "| a\\|b |" in page(report, {})
    write_table(report, tmp_path)
    held = json.loads((tmp_path / "table.json").read_text())
    assert held["rows"][0]["runs"][0]["at"]["rounds"]["metrics"]["macro_ap"] is None


@pytest.mark.integration
def test_rows_are_children_of_one_run_in_mlflow(finished_table):
    from mlflow.tracking import MlflowClient

    from tasks.tracking import mlflow_runs
    from tasks.tracking.uri import resolve_uri

    root, _, _ = finished_table
    name = written(root, rows=ROWS)
    plan = make_plan(load_table(name), "small", None, ["FMMAN"], ["tracking.log_models=false"], [8])
    report = replicate(plan, root / "tracked", RowsDone())
    client = MlflowClient(resolve_uri(plan.data_settings.tracking, root / "runs"))
    parent = client.get_run(report.mlflow_run_id)
    child = client.search_runs([parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert [entry.data.tags["fedscene.row"] for entry in child] == ["FMMAN"]
    wanted = row_metrics(report)
    assert wanted["FMMAN/rounds/macro_ap"] == report.rows[1].mean_and_std("rounds", "macro_ap")[0]
    assert parent.info.status == "FINISHED" and parent.data.metrics == wanted
    assert {file.path for file in client.list_artifacts(parent.info.run_id, "report")} >= {"report/table.md"}
    mlflow_runs.log_table(plan.data_settings.tracking, root / "runs", parent.info.run_id, wanted | {"new": 1.0})
    assert len(client.get_metric_history(parent.info.run_id, "FMMAN/rounds/macro_ap")) == 1
    assert client.get_run(parent.info.run_id).data.metrics["new"] == 1.0
    assert replicate(plan, root / "tracked", RowsDone()).mlflow_run_id == parent.info.run_id
