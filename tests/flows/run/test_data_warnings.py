"""A run warns of unusable input files; audits of two sources never overwrite each other."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flows.cli.main import app

SETS = (
    "ingest.source=folder", "ingest.path=photos", "ingest.image_size=32", "ingest.max_bad_share=0.5",
    "partition.scheme=iid", "partition.clients=2", "partition.min_size=2", "tracking.enabled=false",
    "federation.rounds=1", "train.epochs=1", "model.backbone.width=0.125", "report.images=0", "method.name=fedavg",
)  # fmt: skip


def draw(path: Path, number: int) -> None:
    from PIL import Image

    pixels = np.random.default_rng(number).integers(0, 255, (36, 36, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    for number in range(24):
        draw(tmp_path / f"photos/{'ab'[number % 2]}/{number:02d}.png", number)
    return tmp_path


def command(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def warned() -> list[str]:
    from flows.run.data_warnings import data_warnings
    from flows.run.prepare_data import prepare_data
    from flows.settings.files import load_settings

    return data_warnings(prepare_data(load_settings(None, ["tiny"], SETS)))


def test_a_run_reports_how_many_input_files_are_unusable(here):
    for number in range(3):
        (here / f"photos/a/broken{number}.jpg").write_bytes(b"no image")
    (here / "photos/b/empty.jpg").touch()
    sets = [part for text in SETS for part in ("--set", text)]
    said = "4 of 28 input files cannot be used: 3 not_an_image, 1 empty"
    done = command("run", "--preset", "tiny", *sets, "--json")
    assert done.exit_code == 0, done.output
    assert said in " ".join(done.stderr.split()) and "audit.md" in done.stderr
    found = json.loads(done.stdout)["data"]
    assert (found["files"], found["unusable"]) == (28, {"not_an_image": 3, "empty": 1})
    assert Path(found["list"]).is_file() and Path(found["manifest"]).is_file()
    assert any(line.startswith(said) for line in warned())  # when it is found again too
    report = Path(json.loads(done.stdout)["report"])
    assert said in report.read_text() and "broken0.jpg" in (report.parent / "audit.md").read_text()


def test_a_source_without_bad_files_gets_no_warning(here):
    assert not any("cannot be used" in line for line in warned())


def test_audits_of_two_sources_of_the_same_name_are_both_kept(here):
    reports = {}
    for folder in ("first", "second"):
        (here / folder).mkdir()
        (here / folder / "labels.csv").write_text(f"path,label\n../photos/a/00.png,{folder}\n01.png,x\n")
        draw(here / folder / "01.png", 1)
        draw(here / folder / "00.png", 2)
        done = command("data", "check", str(here / folder / "labels.csv"), "--json")
        reports[folder] = Path(json.loads(done.stdout)["report"])
    assert reports["first"].parent.name == "labels.csv" and reports["second"].parent.name.startswith("labels.csv-")
    assert all(f"{folder}/labels.csv" in report.read_text() for folder, report in reports.items())
    again = command("data", "check", str(here / "first/labels.csv"), "--json")
    assert Path(json.loads(again.stdout)["report"]) == reports["first"]
    again = command("data", "check", str(here / "second/labels.csv"), "--json")
    assert Path(json.loads(again.stdout)["report"]) == reports["second"]


def test_tables_from_two_files_of_the_same_name_get_two_folders(tmp_path):
    from flows.run.folders import table_folder

    one = [table_folder(tmp_path, str(tmp_path / folder / "t.yaml"), "t", "small") for folder in ("a", "b", "a")]
    assert one[0] == one[2] == tmp_path / "t-small" and one[1] != one[0]
    assert table_folder(tmp_path, "t", "t", "small") not in one


@pytest.mark.parametrize("name", ["labels.csv", "..", "a/b", "Kiste 3", "x" * 300, "\udcff.csv", "con"])
def test_the_folder_of_a_source_is_a_direct_child_and_unique(tmp_path, name):
    from flows.run.folders import record_source, unique_folder

    first = unique_folder(tmp_path, name, f"/one/{name}")
    first.mkdir()
    record_source(first, f"/one/{name}")
    assert unique_folder(tmp_path, name, f"/one/{name}") == first
    other = unique_folder(tmp_path, name, f"/two/{name}")
    assert other != first and other.parent == first.parent == tmp_path
