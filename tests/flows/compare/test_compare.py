"""Finished runs side by side: which can be compared, their rows, the figures over seeds and clients, the files."""

import json
import math
import shutil
import statistics

import pytest
from PIL import Image
from typer.testing import CliRunner

from flows.cli.main import app
from flows.compare.results import compare
from flows.compare.runs import load_runs
from flows.compare.write import client_boxes, page, tables
from flows.settings.files import load_settings
from flows.settings.schema import as_values
from models.errors import UserError
from tasks.core.records import ModelRef, RoundRecord, RoundState, StageLog

MILLS = ("mill-a", "mill-b", "mill-c")
runner = CliRunner()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def record_of(number, values, pooled, seconds=2.0):
    """A round in which each client has its macro AP by the protocol local."""
    rows = {client: {"local/macro_ap": value, "local/images": 10.0} for client, value in values.items()}
    known = [value for value in values.values() if math.isfinite(value)]
    over = {"mean": statistics.fmean(known), "std": statistics.stdev(known), "worst": min(known), "best": max(known),
            "worst_decile": min(known), "count": float(len(known))}  # fmt: skip
    return RoundRecord(
        number,
        RoundState.starting_from(ModelRef(f"rounds/{number:04d}/model.safetensors", "1" * 64, 10)),
        stages=[StageLog("train", seconds, 3_000_000, 3_000_000, 1_000_000, len(values))],
        metrics={"macro_ap": pooled, "micro_ap": pooled + 0.1, "loss": 1 - pooled}
        | {f"local/macro_ap/{name}": value for name, value in over.items()},
        per_client=rows,
    )


def add_run(root, name, method, values=(0.5, 0.6, 0.7), *, seed=7, sets=(), rounds=2, facts=None, digest="d"):
    """Write a run of two rounds; the clients have ``values`` after the last one."""
    own = ["model.name=resnet18", "partition.clients=3", "partition.scheme=iid", f"method.name={method}"]
    settings = load_settings(None, ["tiny"], [*own, f"seed={seed}", *sets])
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(as_values(settings)))
    about = {"run_id": name, "classes": ["rust", "oil"], "kind": "multi_label", "data_digest": f"{digest}{seed}",
             "code": "commit 1, sources that decide results abc"}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(about | (facts or {})))
    for number in range(1, rounds + 1):
        found = dict(zip(MILLS, values, strict=True)) if number == rounds else dict.fromkeys(MILLS, 0.1) | {"mill-a": 0}
        (folder / f"rounds/{number:04d}").mkdir(parents=True)
        record = record_of(number, found, statistics.fmean(v for v in found.values() if math.isfinite(v)))
        (folder / f"rounds/{number:04d}/round.json").write_text(json.dumps(record.as_dict()))


def compared(root, *names):
    return compare(*load_runs(root, names))


def test_runs_that_differ_in_seed_alone_are_one_row_with_the_figures_over_seeds_and_clients(root):
    """Local: means over clients 0.6 and 0.5, so 0.55 and sqrt(2 * 0.05^2 / 1) = 0.0707 over the seeds."""
    add_run(root, "l7", "local", (0.5, 0.6, 0.7))
    add_run(root, "l8", "local", (0.5, 0.4, 0.6), seed=8)
    add_run(root, "p8", "fedper", (0.9, 0.8, 0.7), seed=8)
    add_run(root, "p7", "fedper", (0.7, 0.8, 0.9))
    found = compared(root, "l7", "p8", "l8", "p7")
    assert [(group.name, group.seeds) for group in found.groups] == [("local", [7, 8]), ("fedper", [7, 8])]
    local, fedper = found.groups
    assert local.metric("macro_ap") == pytest.approx((0.55, math.sqrt(2 * 0.05**2)))
    assert found.statistic(local, "local", "worst") == pytest.approx((0.45, math.sqrt(2 * 0.05**2)))
    assert found.statistic(fedper, "local", "mean") == pytest.approx((0.8, 0))
    assert local.clients("local") == pytest.approx({"mill-a": 0.5, "mill-b": 0.5, "mill-c": 0.65})
    # Two rounds of 3 MB down, 1 MB up, 2 s
    assert [local.cost(name)[0] for name in ("bytes_down", "bytes_up", "seconds")] == [6e6, 2e6, 4]
    assert found.protocols == ("local",) and found.metrics == ("macro_ap", "micro_ap", "loss") and not found.notes
    assert found.differences["method.name"] == ["local", "fedper"]
    assert found.differences["method.fedper.personal"] == [None, ["readout."]]
    assert not any("seed" in key or "data" in key for key in found.differences)


def test_rows_of_one_method_are_named_by_what_differs(root):
    add_run(root, "a", "ditto", sets=["method.ditto.lam=0.1"])
    add_run(root, "b", "ditto", sets=["method.ditto.lam=1.0"])
    add_run(root, "c", "fedavg")
    add_run(root, "d", "fedavg", facts={"code": "commit 2, sources that decide results other"})  # the same, other code
    found = compared(root, "a", "b", "c", "d")
    assert [group.name for group in found.groups] == ["ditto, lam=0.1", "ditto, lam=1.0", "fedavg, c", "fedavg, d"]
    assert any("different versions of the code" in note for note in found.notes)


def test_what_keeps_a_difference_from_meaning_much_is_noted(root):
    add_run(root, "a", "local")
    add_run(root, "b", "fedper")
    assert any("one seed" in note for note in compared(root, "a", "b").notes)
    add_run(root, "c", "fedper", seed=8)
    add_run(root, "e", "fedavg", sets=["federation.rounds=1"], rounds=1)
    notes = compared(root, "a", "b", "c", "e").notes
    assert any("different seeds (local: 7; fedper: 7, 8; fedavg: 7)" in note for note in notes)
    assert any("numbers of rounds" in note for note in notes)


def test_runs_that_cannot_be_compared_are_named_with_the_reason(root):
    add_run(root, "a", "local")
    add_run(root, "b", "fedper")
    add_run(root, "open", "fedper", sets=["federation.rounds=3"])
    add_run(root, "none", "fedper", rounds=0)
    add_run(root, "labels", "fedper", facts={"classes": ["rust", "crack"]})
    add_run(root, "order", "fedper", facts={"classes": ["oil", "rust"]})
    add_run(root, "split", "fedper", sets=["partition.clients=4"], digest="e")
    add_run(root, "source", "fedper", digest="e")
    add_run(root, "other-seed", "fedper", seed=9, sets=["ingest.synthetic.images=80"])
    add_run(root, "fine", "fedper", seed=9)
    add_run(root, "measure", "fedper", sets=["evaluation.threshold=0.3"])
    asked = "a", "b", "open", "none", "labels", "order", "split", "source", "other-seed", "fine", "measure", "a"
    runs, refused = load_runs(root, asked)
    assert [run.id for run in runs] == ["a", "b", "fine"]
    assert "not finished: 2 of 3 rounds" in refused["open"] and "no finished round" in refused["none"]
    assert "other labels than a: with crack; without oil" in refused["labels"]
    assert "in another order" in refused["order"]
    assert "partition.clients 4, not 3" in refused["split"] and "same seed" in refused["split"]
    assert "source or the code" in refused["source"]
    assert "other images than a: ingest.synthetic.images 80, not 240" in refused["other-seed"]
    assert "evaluation.threshold 0.3, not 0.5" in refused["measure"]
    assert list(refused) == ["open", "none", "labels", "order", "split", "source", "other-seed", "measure"]


def test_fewer_than_two_runs_are_an_error_that_says_why(root):
    add_run(root, "a", "local")
    add_run(root, "open", "fedper", sets=["federation.rounds=3"])
    with pytest.raises(UserError, match="fewer than two") as caught:
        load_runs(root, ["a", "open"])
    assert "open: it is not finished" in str(caught.value)
    with pytest.raises(UserError, match="fewer than two"):
        load_runs(root, ["a", "a"])
    with pytest.raises(UserError, match="no such run"):
        load_runs(root, ["a", "nonesuch"])


def test_runs_may_be_named_by_their_folders(root, tmp_path):
    add_run(root, "a", "local")
    add_run(root, "b", "fedper")
    runs, _ = load_runs(root, [str(root / "a"), f"{root / 'b'}/", "a"])
    assert [run.id for run in runs] == ["a", "b"]
    with pytest.raises(UserError, match="no such run"):
        load_runs(root, [str(tmp_path / "elsewhere/a"), "b"])


def test_a_client_without_a_value_is_left_out_and_a_stopped_run_is_finished(root):
    add_run(root, "a", "local", (0.5, math.nan, 0.7))
    add_run(root, "b", "fedper", sets=["federation.rounds=9"])
    stop = {"round": 2, "reason": "enough", "stop": {}}
    (root / "b/stopped.json").write_text(json.dumps(stop))
    found = compared(root, "a", "b")
    assert found.groups[0].clients("local") == {"mill-a": 0.5, "mill-c": 0.7}
    assert found.statistic(found.groups[0], "local", "count")[0] == 2
    clients = tables(found)[-1]
    assert clients[2][1] == ["mill-b", "-", "0.6000"]


def test_the_page_shows_every_table_and_names_what_is_left_out(root):
    add_run(root, "a", "local")
    add_run(root, "b", "fedper", (0.9, 0.8, 0.7))
    add_run(root, "open", "fedper", sets=["federation.rounds=3"])
    text = page(compared(root, "a", "b", "open"), with_plot=True)
    parts = (
        "method.name", "| fedper | 1 | 2 | 0.8000 |", "| local | fedper | 0.8000 | 0.1000 | 0.7000 |",
        "| mill-a | 0.5000 | 0.9000 |", "6.00 | 2.00 | 4.0", "not finished", "one seed", "clients.png",
    )  # fmt: skip
    for part in parts:
        assert part in text, part


@pytest.mark.figures
def test_the_plot_has_a_box_for_each_method_and_a_colour_for_each_client(root, tmp_path):
    add_run(root, "a", "local", (0.1, 0.2, 0.3))
    add_run(root, "b", "fedper", (0.9, 0.8, 0.7))
    assert client_boxes(compared(root, "a", "b"), tmp_path / "clients.png")
    image = Image.open(tmp_path / "clients.png").convert("RGB")
    assert image.width == 1350
    for colour in ((0, 114, 178), (230, 159, 0), (0, 158, 115)):  # blue, orange and green points and keys
        near = sum(
            count
            for count, pixel in image.getcolors(2**24)
            if all(abs(a - b) < 30 for a, b in zip(pixel, colour, strict=True))
        )
        assert near > 40, colour


def test_without_values_of_clients_there_is_no_plot_and_no_table_of_them(root, tmp_path):
    for name in ("a", "b"):
        add_run(root, name, "fedavg", sets=[f"train.lr={0.01 if name == 'a' else 0.02}"])
        file = root / name / "rounds/0002/round.json"
        value = json.loads(file.read_text())
        value["per_client"] = {}
        value["metrics"] = {key: v for key, v in value["metrics"].items() if "/" not in key}
        file.write_text(json.dumps(value))
    found = compared(root, "a", "b")
    assert [title for title, _, _ in tables(found)] == [
        "Settings that differ", "Pooled test images, and cost of all rounds"
    ]  # fmt: skip
    assert not client_boxes(found, tmp_path / "clients.png") and not (tmp_path / "clients.png").exists()
    assert [group.name for group in found.groups] == ["fedavg, lr=0.01", "fedavg, lr=0.02"]


def test_the_command_prints_writes_and_reports_what_was_left_out(root, tmp_path):
    add_run(root, "a", "local")
    add_run(root, "b", "fedper", (0.9, 0.8, 0.7))
    add_run(root, "open", "fedper", sets=["federation.rounds=3"])
    done = runner.invoke(app, ["compare", "a", "b", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "worst client" in done.stdout and "mill-b" in done.stdout and "note: one seed" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["clients.png", "compare.json", "compare.md"]
    values = json.loads((tmp_path / "out/compare.json").read_text())
    printed = runner.invoke(app, ["compare", "a", "b", "open", "--json"])
    assert printed.exit_code == 1 and "not compared: open: it is not finished" in printed.stderr
    shown = json.loads(printed.stdout)
    assert shown["groups"] == values["groups"] and "not finished" in shown["not_compared"]["open"]
    assert shown["groups"][1]["protocols"]["local"]["worst"] == {"mean": 0.7, "std": None}
    assert shown["groups"][0]["clients"]["local"]["mill-b"] == 0.6 and shown["groups"][0]["bytes_up"]["mean"] == 2e6
    assert shown["settings"]["method.name"] == {"local": "local", "fedper": "fedper"}
    assert runner.invoke(app, ["compare", "a"]).exit_code == 2


@pytest.mark.integration
def test_a_comparison_is_logged_to_mlflow_once(root, migrated):
    from mlflow.tracking import MlflowClient

    add_run(root, "a", "local")
    add_run(root, "b", "fedper", (0.9, 0.8, 0.7))
    shutil.copy(migrated, root / "mlflow.db")
    first, again = (json.loads(runner.invoke(app, ["compare", *names, "--mlflow", "--json"]).stdout)
                    for names in (("a", "b"), ("b", "a")))  # fmt: skip
    assert first["mlflow_run_id"] == again["mlflow_run_id"] and "files" not in first
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    run = client.get_run(first["mlflow_run_id"])
    assert run.data.metrics["fedper/local/worst"] == 0.7 and run.data.metrics["local/bytes_up"] == 2e6
    assert run.data.params["runs"] == "a, b" and run.info.status == "FINISHED"
    files = {entry.path for entry in client.list_artifacts(run.info.run_id, "report")}
    assert files == {"report/clients.png", "report/compare.json", "report/compare.md"}
    add_run(root, "off", "local", sets=["tracking.enabled=false"], seed=8)
    assert runner.invoke(app, ["compare", "off", "a", "--mlflow"]).exit_code == 2
