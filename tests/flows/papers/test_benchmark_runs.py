"""A benchmark that is run: sittings, records, the page and the command line."""

import io
import json

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.cli.output import SafeConsole
from flows.cli.replicate_progress import Rows
from flows.papers.benchmark.plan import make_benchmark_plan, without_runs
from flows.papers.benchmark.run import measured, replicate_cells, row_states
from flows.papers.benchmark.schema import load_benchmark
from models.errors import UserError
from tests.support.benchmark import BENCHMARK, written
from tests.support.tables import RowsDone

OFF = ["tracking.enabled=false"]
pytestmark = [pytest.mark.slow]
runner = CliRunner()


class Interrupted(RowsDone):
    """Progress that interrupts the run as Ctrl-C does, after a number of rounds."""

    def __init__(self, rounds):
        super().__init__()
        self.left = rounds

    def round_done(self, record, found=False):
        self.left -= not found
        if self.left <= 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def sittings(tmp_path_factory):
    """Two sittings of one row: the first is interrupted after a round. Folder, file, both records."""
    root = tmp_path_factory.mktemp("benchmark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSCENE_RUNS", str(root / "runs"))
        patch.chdir(root)
        name = written(root)
        plan = make_benchmark_plan(load_benchmark(name), "full", None, ["C1-fedavg"], OFF, [0])
        with pytest.raises(KeyboardInterrupt):
            replicate_cells(plan, root / "out", Interrupted(1))
        first = json.loads((root / "out" / "cells.json").read_text())
        page = (root / "out" / "cells.md").read_text()
        done = RowsDone()
        replicate_cells(plan, root / "out", done)
        assert done.done == [("C1-fedavg", True)]
        undisturbed = make_benchmark_plan(load_benchmark(name), "full", None, ["C1-fedavg"], OFF, [0])
        patch.setenv("FEDSCENE_RUNS", str(root / "others"))
        replicate_cells(undisturbed, root / "undisturbed", RowsDone())
    return root, name, first, page


@pytest.fixture
def here(sittings, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(sittings[0] / "runs"))
    monkeypatch.chdir(sittings[0])
    return sittings[0], sittings[1]


def of(record, row="C1-fedavg"):
    return record["rows"][row]


def test_an_interrupted_run_leaves_its_rounds_on_the_page_and_the_next_sitting_continues_it(sittings):
    root, _, first, page = sittings
    assert len(of(first)["runs"][0]["curve"]) == 1 and of(first)["verdict"] == "1 of 3 rounds run"
    assert "1 of 3 rounds run" in page
    second, alone = (json.loads((root / place / "cells.json").read_text()) for place in ("out", "undisturbed"))
    assert len(of(second)["runs"][0]["curve"]) == 3 and of(second)["mean"] == of(second)["runs"][0]["curve"][-1]
    assert of(second)["runs"][0]["curve"] == of(alone)["runs"][0]["curve"]  # as without the interruption
    assert of(second)["runs"][0]["curve"][0] == of(first)["runs"][0]["curve"][0]
    assert of(second)["verdict"].startswith(("inside", "outside"))
    assert of(second, "C1-fedprox")["verdict"] == "not run yet"


def test_finished_runs_are_found_and_a_record_serves_where_they_are_missing(here, monkeypatch):
    import flows.federate

    def must_not_run(*_, **__):
        raise AssertionError("a finished run was started again")

    root, name = here
    monkeypatch.setattr(flows.federate, "federate", must_not_run)
    plan = make_benchmark_plan(load_benchmark(name), "full", None, ["C1-fedavg"], OFF, [0])
    found = replicate_cells(plan, root / "again", RowsDone())
    states = {(state.row, state.seed): state for state in row_states(plan)}
    assert (states["C1-fedavg", 0].rounds, states["C1-fedavg", 0].passes) == (3, 0)
    assert (states["C1-fedprox", 0].rounds, states["C1-fedprox", 0].passes) == (0, 3 * 42)
    assert states["C2-ditto", None].problem == "not yet available: later"
    # On a machine without the runs, the record keeps what was measured; nothing is selected, nothing runs
    monkeypatch.setenv("FEDSCENE_RUNS", str(root / "elsewhere"))
    kept = replicate_cells(without_runs(plan), root / "again", RowsDone())
    assert kept.rows["C1-fedavg"].runs == found.rows["C1-fedavg"].runs
    assert kept.figure("C1-fedavg") == found.figure("C1-fedavg")


def test_fewer_rounds_than_the_protocol_are_not_judged(here):
    root, name = here
    plan = make_benchmark_plan(load_benchmark(name), "full", None, ["C1-fedavg"], [*OFF, "federation.rounds=2"], [0])
    report = replicate_cells(plan, root / "two", RowsDone())
    assert report.verdict("C1-fedavg") == "2 of 3 rounds run" and len(report.rows["C1-fedavg"].runs[0].curve) == 2


def test_a_row_that_cannot_run_does_not_end_the_others(here):
    root, _ = here
    bad = {"cell": "C1", "title": "Bad", "protocol": "plain", "settings": {"train": {"lr": -1}}}
    nowhere = {"needs": {"folder": "nowhere", "origin": "the moon"}}
    images = BENCHMARK["images"] | {"real": {"title": "real", "train": 1, "test": 1, "variants": [nowhere]}}
    protocols = BENCHMARK["protocols"] | {"real": BENCHMARK["protocols"]["plain"] | {"images": "real"}}
    missing = {"cell": "C1", "title": "Missing", "protocol": "real", "settings": {"method": {"name": "fedavg"}}}
    folder = root / "faulty"
    folder.mkdir()
    rows = BENCHMARK["rows"] | {"Bad": bad, "Missing": missing}
    name = written(folder, rows=rows, images=images, protocols=protocols)
    plan = make_benchmark_plan(load_benchmark(name), "full", None, ["Bad", "Missing", "C1-fedavg"], OFF, [0])
    progress = RowsDone()
    report = replicate_cells(plan, folder, progress)
    assert progress.done == [("C1-fedavg", True), ("Bad", False), ("Missing", False)]
    assert "train.lr" in report.verdict("Bad") and "the moon" in report.verdict("Missing")


def test_a_metric_that_the_rounds_do_not_have_is_named(here):
    root, _ = here
    folder = root / "metric"
    folder.mkdir()
    protocols = {"plain": BENCHMARK["protocols"]["plain"] | {"metric": "dice"}}
    plan = make_benchmark_plan(load_benchmark(written(folder, protocols=protocols)), "full", None, (), OFF, [0])
    with pytest.raises(UserError, match="do not have the row's metric"):
        measured(plan, plan.row("C1-fedavg"), plan.row("C1-fedavg").runs[0])


def test_a_row_without_its_metric_fails_after_its_run(here, monkeypatch):
    root, _ = here
    folder = root / "late-metric"
    folder.mkdir()
    monkeypatch.setenv("FEDSCENE_RUNS", str(folder / "runs"))  # nothing is known before the run
    protocols = {"plain": BENCHMARK["protocols"]["plain"] | {"metric": "dice", "rounds": 1}}
    plan = make_benchmark_plan(
        load_benchmark(written(folder, protocols=protocols)), "full", None, ["C1-fedavg"], OFF, [0]
    )
    progress = Rows(SafeConsole(file=io.StringIO()))
    report = replicate_cells(plan, folder, progress)
    assert "do not have the row's metric" in report.rows["C1-fedavg"].failed
    assert "failed: the rounds do not have" in progress.console.file.getvalue()


def test_the_command_line(here):
    root, name = here
    arguments = ["replicate", name, "--scale", "full", "--set", OFF[0], "--out", str(root / "cli")]
    dry = runner.invoke(app, [*arguments, "--dry-run", "--seeds", "0"])
    assert dry.exit_code == 0 and "none, finished" in dry.stdout and "not yet available" in dry.stdout
    assert not (root / "cli").exists()
    shown = runner.invoke(app, [*arguments, "--show", "--seeds", "0"])
    assert shown.exit_code == 0 and (root / "cli" / "cells.md").is_file()
    values = json.loads(runner.invoke(app, [*arguments, "--rows", "C1-fedavg", "--seeds", "0", "--json"]).stdout)
    assert values["rows"]["C1-fedavg"]["verdict"].startswith(("inside", "outside"))
    assert runner.invoke(app, [*arguments, "--rows", "C2-ditto"]).exit_code == 2
    assert runner.invoke(app, [*arguments, "--dry-run", "--show"]).exit_code == 2
    assert "K2-fedavg" in runner.invoke(app, ["replicate", "classics", "--list"]).stdout
    listed = json.loads(runner.invoke(app, ["replicate", name, "--list", "--json"]).stdout)
    assert "C1-fedavg" in listed["cells"]["rows"]
