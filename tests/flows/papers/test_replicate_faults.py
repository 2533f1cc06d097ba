"""Faults in a table file or its options, and errors that must not end a table."""

import shutil
from dataclasses import replace

import pytest

from flows.cli.options import parse_seeds
from flows.papers.replicate.run import make_plan, replicate, require_writable
from flows.papers.replicate.tables import load_table, planned_runs
from flows.papers.replicate.write import main_table, page, write_table
from models.errors import UserError
from tests.support.tables import FOLDER, RowsDone, written

OFF = ["tracking.enabled=false"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": {"A": "x"}}, "rows of a table cannot be read"),
        ({"rows": {"A": [1]}}, "rows of a table cannot be read"),
        ({"common": "nowhere.yaml"}, "common file is missing"),
        ({"common": None}, "common file is missing"),
        ({"scales": {"small": {"rounds": 2, "seeds": [7, 7]}}}, "seeds must differ"),
        ({"rows": {"A": {"at": {"small": {}}}}}, "renamed key: at is now overrides"),
        ({"rows": {"A": {"stages": 2}}}, "renamed key: stages is now local_trainings_per_round"),
    ],
)
def test_faults_of_a_file_are_named(tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        load_table(written(tmp_path, **changes))


def test_rows_of_a_common_file_must_be_mappings(tmp_path):
    (tmp_path / "mine-rows.yaml").write_text("rows: [A]\n")
    with pytest.raises(UserError, match="rows of a table cannot be read"):
        load_table(written(tmp_path, common="mine-rows.yaml"))


def test_a_copied_table_finds_the_shipped_common_file(tmp_path):
    shutil.copy(FOLDER / "fmman-table6.yaml", tmp_path / "copy.yaml")
    copied, shipped = load_table(str(tmp_path / "copy.yaml")), load_table("fmman-table6")
    assert copied.rows == shipped.rows and copied.scales == shipped.scales


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"settings": {"seed": 99}}, "neither seed nor federation.rounds"),
        ({"overrides": {"small": {"federation": {"rounds": 5}}}}, "neither seed nor federation.rounds"),
        ({"settings": {"evaluation": {"every": 3}}}, "would not be evaluated"),
        ({"settings": {"method": {"name": "scaffold"}}}, "plain SGD"),
    ],
)
def test_a_row_that_cannot_run_has_its_error_before_any_run(tmp_path, row, said):
    (job,) = planned_runs(load_table(written(tmp_path, rows={"A": row}, paper={})), "small", None)
    assert job.settings is None and said in str(job.error)


def test_overrides_of_the_seed_and_bad_seeds_are_refused(tmp_path):
    table = load_table(written(tmp_path))
    with pytest.raises(UserError, match="not one seed"):
        planned_runs(table, "small", None, ["seed.x=3"])
    with pytest.raises(UserError, match="not a section"):
        planned_runs(table, "small", None, ["federation=5"])
    for text in ("7,07", "", "1,x", "-3"):
        with pytest.raises(UserError, match="not seeds"):
            parse_seeds(text)
    assert parse_seeds("7, 8") == [7, 8] and parse_seeds(None) is None


def test_ingest_path_replaces_the_required_images(tmp_path):
    with pytest.raises(UserError, match="needs images that are not shipped"):
        make_plan(load_table("fmman-table1"), "small", None)
    plan = make_plan(load_table("fmman-table1"), "small", None, (), [f"ingest.path={tmp_path}"])
    assert plan.data_settings.ingest.path == tmp_path


def test_a_folder_that_cannot_be_written_is_refused_before_any_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    plan, progress = make_plan(load_table(written(tmp_path)), "small", None, (), OFF), RowsDone()
    with pytest.raises(UserError, match="cannot write there"):
        replicate(plan, tmp_path / "file", progress)
    assert progress.done == [] and not (tmp_path / "runs").exists()
    require_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.mark.slow
@pytest.mark.figures
def test_an_unexpected_error_marks_its_row_and_the_table_goes_on(tmp_path, monkeypatch):
    from flows import federate

    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    real = federate.federate

    def sometimes(settings, *args, **kwargs):
        if settings.method.name == "fedavg":
            raise ArithmeticError("no such number")
        return real(settings, *args, **kwargs)

    monkeypatch.setattr(federate, "federate", sometimes)
    plan, progress = make_plan(load_table(written(tmp_path)), "small", None, (), OFF), RowsDone()
    report = replicate(plan, tmp_path / "out", progress)
    assert progress.done == [("FedAvg", False), ("FMMAN", True)]
    assert report.rows[0].failed == "ArithmeticError: no such number" and report.rows[1].runs
    text = (tmp_path / "out" / "table.md").read_text()
    assert "FedAvg (failed)" in text and "ArithmeticError" in text
    assert all((tmp_path / "out" / name).is_file() for name in ("precision-recall.png", "class-f1.png"))
    assert text.count("](") == 2  # the two plots

    # A row with fewer seeds says so; a missing plot is not shown, and neither is "paper"
    more = replace(report, seeds=[5, 6], rows=[replace(row, paper=None) for row in report.rows])
    heads, rows = main_table(more)
    assert "paper" not in heads and rows[1][0] == "FMMAN (1 of 2 seeds)"
    assert "](" not in page(more, {})
    write_table(more, tmp_path / "elsewhere")
    assert "](" not in (tmp_path / "elsewhere" / "table.md").read_text()


def test_the_example_in_the_docs_is_a_table(tmp_path):
    text = (FOLDER.parents[2] / "docs" / "replicate.md").read_text().split("```yaml\n")[1].split("```")[0]
    (tmp_path / "example.yaml").write_text(text)
    found = planned_runs(load_table(str(tmp_path / "example.yaml")), "small", None)
    assert [job.row for job in found] == ["FedAvg"] * 3 + ["MOON"] * 3 + ["FMMAN"] * 3
    assert not any(job.error for job in found) and {job.equal_epoch_rounds for job in found} == {4, None}


def test_a_table_of_images_with_one_label_is_refused_with_what_to_do(tmp_path):
    images = ["ingest.synthetic.set=scrap", "model.name=simple_cnn", "method.name=fedavg", "objective.name=default"]
    with pytest.raises(UserError, match="kind: benchmark"):
        make_plan(load_table(written(tmp_path)), "small", None, (), images)
