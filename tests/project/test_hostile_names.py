"""A whole run whose sites and labels have hostile names: nothing else is touched, nothing mixed up, all is legible."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from flows.cli.main import app
from flows.engine.engines import task_run_name
from tasks.core.finished_rounds import load_round
from tasks.core.store import Store, state_digest
from tasks.data.dataset import load_dataset
from tasks.plotting.markdown import safe_cell

pytestmark = [pytest.mark.integration, pytest.mark.figures]
SITES = (
    "../../../escape", "/var/abs", "plant A/line 1", "plant A\\line 1", "plant A_line 1", "..", "CON", "con", "x" * 300,
    "a\x1b[31m\nb", "\u202egnp", "😀 *|[red]", "plain-1",
)  # fmt: skip
LABELS = ("../rust", "/etc/rust", "Rust", "rust", "r" * 300, "$r$|`<b>", "\u202etsur\x07")
PER_SITE, SIDE = 4, 32
SETS = (
    "ingest.source=table", "ingest.site.rule=column", "ingest.site.column=where", "ingest.image_size=32",
    "partition.min_size=1", "partition.local.scheme=local", "ingest.split.val=0", "ingest.split.test=0.25",
    "method.name=moon", "model.name=resnet18", "train.epochs=1", "report.images=2", "tracking.log_models=false",
)  # fmt: skip


def make_source(folder):
    """Images of noise with a table that gives each a site and one or two labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, rows = np.random.default_rng(3), []
    folder.mkdir()
    for number in range(PER_SITE * len(SITES)):
        name = f"{number:03d}.png"
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(folder / name)
        labels = [LABELS[number % len(LABELS)], LABELS[number // len(SITES)]]
        rows.append({"image": name, "labels": labels, "where": SITES[number % len(SITES)]})
    pq.write_table(pa.Table.from_pylist(rows), folder / "table.parquet")
    return rows


def listing(folder, without):
    """Every file in the folder but what is below ``without``: path -> size and time."""
    found = {path: path.lstat() for path in folder.rglob("*") if without not in (path, *path.parents)}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found.items() if not path.is_dir()}


def call(*arguments, code=0):
    done = CliRunner().invoke(app, [str(part) for part in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    assert all(line.isprintable() for line in done.output.split("\n"))
    return done.stdout if code == 0 else done.output


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One round with MOON, then the same run again for a second one."""
    root = tmp_path_factory.mktemp("hostile")
    work = root / "a/b/c/work"
    work.mkdir(parents=True)
    rows = make_source(root / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        patch.setenv("FEDSCENE_RUNS", str(work / "runs"))
        before = listing(root, work)
        sets = [part for text in (*SETS, f"ingest.path={root / 'source'}") for part in ("--set", text)]
        run = ["run", "--preset", "tiny", *sets, "--json", "--set"]
        first = json.loads(call(*run, "federation.rounds=1"))
        second = json.loads(call(*run, "federation.rounds=2"))
        yield SimpleNamespace(work=work, root=root, rows=rows, before=before, first=first, second=second)


def test_nothing_outside_the_runs_folder_is_written(done):
    assert listing(done.root, done.work) == done.before
    assert [path.name for path in done.work.iterdir()] == ["runs"]
    own = (done.second["run_id"], "data", "mlartifacts", "mlflow.db", ".fedscene-runs")
    assert [path.name for path in (done.work / "runs").iterdir() if not path.name.startswith(own)] == []
    assert not Path("/var/abs").exists() and not Path("/etc/rust").exists()
    names = [path.name for path in Path(done.second["root"]).rglob("*") if path.name != ".lock"]
    assert all(name.isascii() and name.isprintable() and not set(name) & set(' \\:*?"<>|') for name in names)


def test_each_client_has_its_own_state_counts_and_metrics(done):
    from tasks.core.store import client_folder

    assert done.first["run_id"] == done.second["run_id"] and done.second["rounds"] == 2
    store = Store(done.second["root"])
    record = load_round(store, 2)
    assert set(record.state.private) == set(SITES) == set(record.participants) == set(record.per_client)
    folders = store.names("clients")
    assert len(folders) == len(SITES) == len({name.casefold() for name in folders})
    updates = {update.client: update for update in record.updates[1]}
    for site in SITES:
        ref = record.state.private[site]
        assert ref.uri.startswith(f"{client_folder(site)}/") and len(store.names(client_folder(site))) == 1
        kept = {name.removeprefix("moon/"): value for name, value in store.get_state(ref).items()}
        assert state_digest(kept) == updates[site].model.digest  # what this client, and no other, has trained
    assert len({ref.digest for ref in record.state.private.values()}) == len(SITES)
    data = json.loads((Path(done.second["root"]) / "run.json").read_text())
    dataset = load_dataset(Path(data["dataset"]))
    assert Counter(dataset.sites.tolist()) == dict.fromkeys(SITES, PER_SITE)
    assert sorted(dataset.classes) == sorted(LABELS) == sorted(data["classes"])
    own = {row["image"]: (row["where"], set(row["labels"])) for row in done.rows}
    import pyarrow.parquet as pq

    for row in pq.read_table(Path(data["dataset"]) / "samples.parquet").to_pylist():
        assert (row["site"], set(row["labels"])) == own[row["source"]]
    held = Counter(dataset.sites[dataset.splits != "test"].tolist())  # of which the client keeps some to test on
    for site in SITES:
        tested = record.per_client[site]["local/images"]
        assert updates[site].samples + tested == held[site] and tested >= 1


def test_the_report_names_every_site_and_label(done):
    from tasks.core.names import visible_name

    call("report")
    text = (Path(done.second["root"]) / "report/report.md").read_text()
    assert all(line.isprintable() for line in text.split("\n"))
    lines = text.split("\n")
    for title, names in zip(("Classes", "Sites", "Clients"), (LABELS, SITES, SITES), strict=True):
        start = next(i for i, line in enumerate(lines) if line.startswith(f"## {title}") and line.endswith("round 2"))
        start = next(i for i in range(start, len(lines)) if lines[i].startswith("| name |")) - 2
        table = lines[start + 4 : start + 4 + len(names)]
        assert {line.split(" | ")[0] for line in table} == {f"| {safe_cell(visible_name(name))}" for name in names}


def test_mlflow_has_every_sites_and_labels_numbers_once(done):
    from tasks.core.names import metric_parts

    record = load_round(Store(done.second["root"]), 2)
    database = sqlite3.connect(done.work / "runs/mlflow.db")
    found = dict(database.execute("SELECT key, value FROM latest_metrics").fetchall())
    steps = Counter(database.execute("SELECT key, step FROM metrics").fetchall())
    database.close()
    assert set(steps.values()) == {1} and len({key.casefold() for key in found}) == len(found)
    for title, table in (("site", record.per_site), ("class", record.per_class)):
        for name, part in metric_parts(table).items():
            for metric, value in table[name].items():
                if np.isfinite(value):
                    assert found[f"{title}/{part}/{metric}"] == pytest.approx(value)
    assert sum(key.startswith("site/") and key.endswith("/images") for key in found) == len(SITES)


def test_data_show_writes_a_sheet_for_each_site_and_names_it(done):
    from tasks.core.names import file_name, visible_name

    root = Path(json.loads((Path(done.second["root"]) / "run.json").read_text())["dataset"]).parent
    before = listing(done.root, root / "sheets")
    text = call("data", "show", "--root", root, "--per-site", 2)
    assert listing(done.root, root / "sheets") == before
    assert {path.name for path in (root / "sheets").glob("*.png")} == {f"{file_name(site)}.png" for site in SITES}
    for site in SITES:
        assert f"sheet of {visible_name(site)}: {root / 'sheets' / file_name(site)}.png" in text
    one = json.loads(call("data", "show", "--root", root, "--per-site", 2, "--site", SITES[0], "--json"))
    assert list(one["sheets"]) == [SITES[0]] and set(one["sites"]["clients"]) == set(SITES)


@pytest.mark.parametrize("name", [*SITES[:10], "a'b", "tables", "DATA", "nul.txt", "end.", "北" * 90, "../runs/data"])
def test_a_hostile_run_name_is_refused_before_anything_is_made(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    for command in (["run", "--preset", "tiny", "--run-id", name], ["report", "--", name]):
        text = call(*command, code=2)
        assert "error: " in text and len(text.splitlines()) < 10
    assert list(tmp_path.iterdir()) == []


def test_names_for_prefect_are_printable():
    name = task_run_name(f"round 1: {', '.join(SITES)}, {{x}}")
    assert name.isprintable() and len(name) <= 200 and "{" not in name
