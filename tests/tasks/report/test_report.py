"""Report, metrics files, terminal table and plots of fabricated rounds."""

import csv
import json
import math

import numpy as np
import pytest
from PIL import Image

from models.errors import UserError
from tasks.core.records import Dropped
from tasks.core.round_summary import load_records
from tasks.data.statistics.plots import FILES
from tasks.report import metric_plots, plots
from tasks.report.prediction_sheet import prediction_lines
from tasks.report.report import Predictions, ReportSettings, build_report
from tasks.report.round_table import round_row, round_table
from tests.support.fabricated import CLASSES, fabricated_record, fabricated_run


def _images(count: int) -> Predictions:
    rng = np.random.default_rng(0)
    truths = (rng.random((count, len(CLASSES))) < 0.4).astype(np.uint8)
    return Predictions(rng.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8), truths, rng.random(truths.shape))


def _text_table(text: str, heading: str) -> list[list[str]]:
    lines = text.split(f"## {heading}")[1].split("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]


@pytest.mark.figures
def test_the_report_has_every_section_and_plot(tmp_path):
    records = fabricated_run(tmp_path / "run", 4)
    result = build_report(tmp_path / "run", tmp_path / "out", predictions=_images(3))
    text = (tmp_path / "out" / "report.md").read_text()
    rounds = _text_table(text, "Rounds")
    assert [row[0] for row in rounds[2:]] == ["1", "2", "3", "4"]
    assert rounds[2 + 2][1] == f"{records[2].metrics['macro_ap']:.4f}"
    assert rounds[2 + 2][7:9] == ["9", "1"]  # nine completed, one dropped
    assert _text_table(text, "Dropped clients")[2] == ["client-03", "1", "no answer in 3600 s", "1", "3"]
    assert [row[0] for row in _text_table(text, "Classes, round 4")[2:]] == CLASSES
    assert len(_text_table(text, "Sites, round 4")) == 2 + 3
    assert _text_table(text, "Clusters, round 4")[2] == ["0", "4", "client-00, client-03, client-06, client-09"]
    assert "- Round 3: client-03 left out" in text
    assert ["federate", "method=fmman, rounds=4, clients.fraction=1"] in _text_table(text, "Settings")
    for path in result["files"]:
        assert path.stat().st_size > 0
    linked = {line.split("(plots/")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")}
    assert linked == {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert "sample_predictions.png" in linked


def test_metrics_json_and_rounds_csv(tmp_path):
    records = fabricated_run(tmp_path / "run", 3)
    records[-1].metrics["macro_ap"] = math.nan
    (tmp_path / "run" / "rounds" / "0003" / "round.json").write_text(json.dumps(records[-1].as_dict()))
    result = build_report(tmp_path / "run", tmp_path / "out")
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert metrics == result["metrics"]
    assert metrics["macro_ap"] is None
    assert metrics["cf1"] == records[-1].metrics["cf1"]
    assert (metrics["rounds"], metrics["best_round"]) == (3, 2)
    # bytes up: two stages with 400,000 from each of 10, 10 and 9 clients
    assert metrics["all_rounds_bytes_up"] == 2 * 400_000 * 29
    with (tmp_path / "out" / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    assert rows[2]["macro_ap"] == ""
    assert float(rows[0]["macro_ap"]) == records[0].metrics["macro_ap"]


def test_the_worst_decile_of_client_losses_is_of_the_last_stage():
    record = fabricated_record(1)  # losses rise by 0.02 from client to client: the worst of ten is the last
    assert round_row(record)["worst_client_loss"] == pytest.approx(record.updates[3][-1].mean("classification"))


def test_a_new_report_removes_stale_plots(tmp_path):
    fabricated_run(tmp_path / "run", 1)
    build_report(tmp_path / "run", tmp_path / "out", predictions=_images(2))
    result = build_report(tmp_path / "run", tmp_path / "out", ReportSettings(images=0), _images(2))
    plots_on_disk = {path.name for path in (tmp_path / "out" / "plots").iterdir()}
    assert "sample_predictions.png" not in plots_on_disk
    assert plots_on_disk == {path.name for path in result["files"] if path.suffix == ".png"}


def test_plots_and_tables_of_the_data_are_in_the_report(tmp_path):
    fabricated_run(tmp_path / "run", 1)
    build_report(tmp_path / "run", tmp_path / "without")
    assert "heterogeneity.md" not in (tmp_path / "without" / "report.md").read_text()
    (tmp_path / "run" / "data").mkdir()
    for name in (*FILES, "audit.md", "quarantined.png"):
        (tmp_path / "run" / "data" / name).write_bytes(name.encode())
    result = build_report(tmp_path / "run", tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    for name in FILES:
        place = f"plots/{name}" if name.endswith(".png") else name
        assert (tmp_path / "out" / place).read_bytes() == name.encode()
        assert tmp_path / "out" / place in result["files"]
        assert f"({place})" in text or name.endswith(".json")
    assert "(audit.md)" in text
    assert {tmp_path / "out" / "audit.md", tmp_path / "out" / "quarantined.png"} <= set(result["files"])


def test_external_names_are_escaped_in_tables(tmp_path):
    records = fabricated_run(tmp_path / "run", 1)
    records[0].dropped.append(Dropped("a|b\n# <b>", 1, "[x](y) *z* `q`"))
    (tmp_path / "run" / "rounds" / "0001" / "round.json").write_text(json.dumps(records[0].as_dict()))
    build_report(tmp_path / "run", tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert r"| a\|b\\n# &lt;b> | 1 | \[x](y) \*z\* \`q\` | 1 | 1 |" in text


def test_unfinished_rounds_are_ignored_and_damaged_ones_refused(tmp_path):
    with pytest.raises(UserError, match="no finished round"):
        build_report(tmp_path / "run", tmp_path / "out")
    fabricated_run(tmp_path / "run", 2)
    (tmp_path / "run" / "rounds" / ".0003.working").mkdir()
    assert [record.round for record in load_records(tmp_path / "run")] == [1, 2]
    (tmp_path / "run" / "rounds" / "0002" / "round.json").write_text("{")
    with pytest.raises(UserError, match=r"0002/round\.json"):
        build_report(tmp_path / "run", tmp_path / "out")


def _save(run, record):
    (run / "rounds" / f"{record.round:04d}" / "round.json").write_text(json.dumps(record.as_dict()))


def test_a_report_of_rounds_of_which_some_were_not_evaluated(tmp_path):
    run = tmp_path / "run"
    records = fabricated_run(run, 4)
    for record in (records[0], records[2], records[3]):  # the last one too: a run that was interrupted
        record.metrics, record.per_class, record.per_site = {}, {}, {}
        _save(run, record)
    result = build_report(run, tmp_path / "out", predictions=_images(2))
    text = (tmp_path / "out" / "report.md").read_text()
    assert "nan" not in text
    rounds = _text_table(text, "Rounds")[2:]
    assert [row[1] for row in rounds] == ["-", f"{records[1].metrics['macro_ap']:.4f}", "-", "-"]
    assert [row[10] for row in rounds] == ["8.00", "8.00", "7.20", "8.00"], "traffic is still reported"
    assert "| macro AP, round 2 |" in text
    assert "| best round by validation | 2 (" in text
    assert "## Classes, round 2" in text
    assert "## Sites, round 2" in text
    assert result["metrics"]["macro_ap"] == records[1].metrics["macro_ap"]
    assert result["metrics"]["best_round"] == 2
    with (tmp_path / "out" / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["round", "macro_ap", "micro_ap"]
    assert [bool(row["macro_ap"]) for row in rows] == [False, True, False, False]
    assert all(row["bytes_up"] for row in rows)
    records[1].metrics = {}
    _save(run, records[1])
    nothing = build_report(run, tmp_path / "nothing")
    assert nothing["metrics"]["best_score"] is None
    assert "macro_ap" not in nothing["metrics"]
    assert "| best round by validation | - |" in (tmp_path / "nothing" / "report.md").read_text()
    assert [row.style for row in round_table(records).rows] == [None, None, None, "bold"]


def test_lines_join_the_evaluated_rounds(tmp_path):
    from matplotlib.figure import Figure

    records = [fabricated_record(number) for number in range(1, 8)]
    for record in records:
        record.metrics = record.metrics if record.round in (3, 6, 7) else {}
    axes = Figure().subplots()
    metric_plots.plot_metrics(axes, records, [metric_plots.Line("macro_ap", "macro AP", "k", "-")])
    assert axes.lines[0].get_xdata().tolist() == [3, 6, 7]
    assert np.isfinite(axes.lines[0].get_ydata()).all()


def test_clients_are_listed_worst_first(tmp_path):
    run = tmp_path / "run"
    record = fabricated_run(run, 1)[0]
    names = [f"c{number:03d}" for number in range(130)]
    record.per_client = {
        name: {"macro_ap": 1 - number / 200, "loss": 0.5, "images": 9.0} for number, name in enumerate(names)
    }
    record.per_client["c000"]["macro_ap"] = math.nan
    record.metrics |= {f"client/macro_ap/{key}": 0.25 for key in ("mean", "std", "worst_decile", "min", "max")}
    record.metrics["client/macro_ap/count"] = 129.0
    record.per_class["rust"] |= {"support": 0.0, "ap": math.nan}
    _save(run, record)
    result = build_report(run, tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    rows = _text_table(text, "Clients, local, round 1")
    assert rows[0] == ["name", "macro_ap", "loss", "images"]
    assert rows[2] == ["c129", "0.3550", "0.5000", "9"], "the worst first"
    assert len(rows) == 2 + 100
    assert "30 more clients are not shown" in text
    rows = _text_table(text, "Distributions over clients, round 1")
    assert rows[0] == ["over clients", "mean", "population_std", "worst_decile", "min", "max", "count"], "old names"
    assert rows[-1] == ["local/macro_ap", *["0.2500"] * 5, "129"]
    assert tmp_path / "out" / "plots" / "clients.png" in result["files"]
    assert result["metrics"]["local/macro_ap/worst_decile"] == 0.25
    assert "so without AP: rust. They are excluded from every macro mean." in text
    notes = {"zero": "They count as 0 in every macro mean.", "zero_f1": "They are excluded from macro-AP, and"}
    for value, note in notes.items():
        settings = json.loads((run / "settings.json").read_text()) | {"evaluation": {"zero_support": value}}
        (run / "settings.json").write_text(json.dumps(settings))
        build_report(run, tmp_path / "out")
        assert note in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.figures
def test_the_report_uses_the_threshold_of_the_run(tmp_path):
    run = tmp_path / "run"
    record = fabricated_run(run, 1)[0]
    record.metrics |= {"micro_recall": 0.0, "micro_precision": 0.0}
    _save(run, record)
    sheets = []
    for threshold in (0.5, 0.01):
        settings = json.loads((run / "settings.json").read_text()) | {"evaluation": {"threshold": threshold}}
        (run / "settings.json").write_text(json.dumps(settings))
        build_report(run, tmp_path / "out", predictions=_images(3))
        assert f"has a score of {threshold:g} or more" in (tmp_path / "out" / "report.md").read_text()
        sheets.append((tmp_path / "out" / "plots" / "sample_predictions.png").read_bytes())
    assert sheets[0] != sheets[1]


def test_the_terminal_table_marks_the_best_round():
    records = [fabricated_record(number) for number in (1, 2, 3)]
    records[1].metrics["macro_ap"] = 0.99
    table = round_table(records)
    assert [row.style for row in table.rows] == [None, "bold", None]
    assert list(table.columns[1].cells)[1] == "0.9900"


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("rounds", [1, 40])
def test_plots_of_few_and_of_many_rounds_have_content(tmp_path, rounds):
    clients = [f"c{index}" for index in range(60)]
    classes = ["$a_b$", "x" * 80, *CLASSES]
    records = [fabricated_record(number, classes, clients) for number in range(1, rounds + 1)]
    records[-1].per_class["$a_b$"]["ap"] = math.nan
    metric_plots.learning_curve(records, tmp_path / "a.png")
    plots.traffic(records, 12.0, tmp_path / "b.png")
    metric_plots.metric_by_traffic(records, 30.0, tmp_path / "g.png")
    plots.clusters_by_round(records, tmp_path / "c.png")
    metric_plots.per_class_bars(records[-1], tmp_path / "d.png")
    records[-1].per_client = {
        client: {"local/macro_ap": 0.3 + 0.01 * k, "matched/macro_ap": 0.9 - 0.01 * k}
        for k, client in enumerate(clients[: 2 * rounds])
    }
    plots.client_bars(records[-1], tmp_path / "e.png")
    plots.protocol_boxes(records[-1], tmp_path / "f.png")
    for path in tmp_path.iterdir():
        with Image.open(path) as image:
            assert image.width == 1350
            assert len(image.convert("RGB").resize((90, 60)).getcolors(5400) or []) > 5


def test_prediction_lines_of_an_image():
    truth, score = np.array([1, 0, 1, 0]), np.array([0.9, 0.6, 0.2, 0.1])
    lines = prediction_lines(truth, score, ["a", "b", "c", "d"], score >= 0.5)
    assert [text for text, _ in lines] == ["✓ 0.90 a", "✗ 0.60 b", "○ 0.20 c"]
    assert len({colour for _, colour in lines}) == 3
    many = prediction_lines(np.ones(10), np.full(10, 0.9), list("abcdefghij"), np.full(10, True))
    assert len(many) == 7
    assert many[-1][0] == "and 4 more"
    assert prediction_lines(np.zeros(2), np.zeros(2), ["a", "b"], np.full(2, False))[0][0] == "no label, none predicted"
