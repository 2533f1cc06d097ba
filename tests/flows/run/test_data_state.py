"""Prepared data belong to the state of their source: every change of the source is noticed, and nothing else."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from flows.run.prepare_data import find_data, prepare_data, require_data
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.data.dataset import load_dataset
from tasks.data.statistics.plots import write_partition_figures
from tests.support.projects import LocalTask

SMALL = ("ingest.image_size=32", "partition.scheme=iid", "partition.clients=2", "partition.min_size=2")


def draw(path: Path, number: int) -> None:
    from PIL import Image

    pixels = np.random.default_rng(number).integers(0, 255, (36, 36, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with 36 photographs of three classes in ``photos``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(
        "tasks.data.statistics.plots.write_partition_figures", lambda *_, **__: None
    )  # they take half a second
    for number in range(36):
        draw(tmp_path / f"photos/{'abc'[number % 3]}/{number:02d}.png", number)
    return tmp_path


def settings(*sets: str, source: str = "folder", path: str = "photos"):
    return load_settings(None, ["tiny"], [*SMALL, f"ingest.source={source}", f"ingest.path={path}", *sets])


@pytest.fixture
def prepared(caplog):
    """``prepared(...) -> (digest, lines)``: prepare the data; the lines are the notes."""

    def prepare(*sets, **more):
        caplog.clear()
        paths = prepare_data(settings(*sets, **more))
        return load_dataset(paths.dataset).digest, list(caplog.messages)

    return prepare


def older(*paths: Path) -> None:
    """Set old modification times, as photographs have."""
    for path in paths:
        os.utime(path, (1_500_000_000, 1_500_000_000))


def move_ten(root):
    for number in range(0, 30, 3):
        (root / f"photos/a/{number:02d}.png").rename(root / f"photos/b/{number:02d}.png")


def add_class(root):
    for number in range(100, 104):
        draw(root / f"photos/d/{number}.png", number)


def delete_five(root):
    for number in range(1, 16, 3):
        (root / f"photos/b/{number:02d}.png").unlink()


def overwrite(root):
    """Replace an image by one of the same size in bytes, with the same modification time."""
    file = root / "photos/c/02.png"
    before, data = file.stat(), bytearray(file.read_bytes())
    draw(root / "new.png", 99)
    new = (root / "new.png").read_bytes()[: len(data)]
    file.write_bytes(new + bytes(len(data) - len(new)))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (move_ten, "10 moved (a/00.png -> b/00.png, ...)"),
        (add_class, "5 new (d/, ...)"),
        (delete_five, "5 removed (b/01.png, ...)"),
        (overwrite, "1 changed (c/02.png)"),
        (lambda root: (root / "photos/empty").mkdir(), "1 new (empty/)"),
    ],
)
def test_a_changed_source_gives_another_data_set_and_the_old_one_stays(here, prepared, change, expected):
    older(*(here / "photos").rglob("*.png"))
    first, lines = prepared()
    old = find_data(settings())
    assert lines == [] and prepared() == (first, [])
    kept = shutil.copytree(here / "photos", here / "kept")
    change(here)
    assert find_data(settings()) is None
    second, lines = prepared()
    assert second != first and len(lines) == 1 and expected in lines[0] and "preparing again" in lines[0]
    assert prepared() == (second, [])
    assert load_dataset(old.dataset).digest == first
    shutil.rmtree(here / "photos")
    kept.rename(here / "photos")
    assert prepared() == (first, [])  # the original state: nothing is prepared again


def test_changes_beside_the_photographs_keep_the_data_set(here, prepared):
    first, _ = prepared()
    for file in (here / "photos").rglob("*.png"):
        file.touch()
    shutil.copytree(here / "photos", here / "copy")
    shutil.rmtree(here / "photos")
    (here / "copy").rename(here / "photos")
    (here / "photos/.DS_Store").write_text("litter")
    assert prepared() == (first, [])
    assert prepared(path="./photos/") == (first, [])


def test_a_cached_hash_is_used_for_an_unchanged_file_only(here, prepared, monkeypatch):
    from tasks.data.ingest import file_hashes

    monkeypatch.setattr(file_hashes, "MIN_AGE_NS", 0)
    prepared()
    read = []
    digest = file_hashes.hashlib.file_digest
    monkeypatch.setattr(
        file_hashes.hashlib, "file_digest", lambda file, kind: read.append(file.name) or digest(file, kind)
    )
    prepared()
    assert read == []
    (here / "photos/a/00.png").touch()
    prepared()
    assert [Path(name).name for name in read] == ["00.png"]
    (memory,) = (here / "runs/data/.sources").iterdir()
    memory.write_text('{"a": 3')
    prepared()  # damaged: costs time only


def test_a_missing_source_is_reported_and_the_prepared_data_are_used(here, prepared):
    first, _ = prepared()
    (here / "photos").rename(here / "unplugged")
    for mount_point in (False, True):
        if mount_point:
            (here / "photos").mkdir()
        digest, lines = prepared()
        assert digest == first and len(lines) == 1 and "the source is missing" in lines[0] and "runs/data/" in lines[0]
    with pytest.raises(UserError, match=r"no such folder|no images"):
        prepared("ingest.image_size=40")


def test_lists_outside_the_source_are_compared_too(here, prepared):
    table = here / "sites.csv"
    rows = [
        f"{path.name},{'north' if number % 2 else 'south'}"
        for number, path in enumerate(sorted(Path("photos").rglob("*.png")))
    ]
    table.write_text("\n".join(["path,name", *rows]))
    sets = ("ingest.site.rule=table", f"ingest.site.table={table}")
    first, _ = prepared(*sets)
    table.write_text(table.read_text().replace("00.png,south", "00.png,north"))
    second, lines = prepared(*sets)
    assert second != first and "1 changed (ingest.site.table)" in lines[0]


def test_a_list_file_as_source_depends_on_the_listed_files_only(here, prepared):
    rows = [f"photos/{'abc'[n % 3]}/{n:02d}.png,{'abc'[n % 3]}" for n in range(30)]
    (here / "labels.csv").write_text("\n".join(["path,label", *rows]))
    first, _ = prepared(source="table", path="labels.csv")
    (here / "notes.txt").write_text("beside it, as the folder of runs")
    draw(here / "photos/a/33x.png", 7)
    assert prepared(source="table", path="labels.csv") == (first, [])
    draw(here / "photos/a/00.png", 500)
    second, lines = prepared(source="table", path="labels.csv")
    assert second != first and "1 changed (photos/a/00.png)" in lines[0]
    text = (here / "labels.csv").read_text()
    (here / "labels.csv").write_text(text.replace("01.png,b", "01.png,c"))
    third, lines = prepared(source="table", path="labels.csv")
    assert third != second and "1 changed (labels.csv)" in lines[0]


def test_the_runs_folder_inside_a_source_is_ignored(here, prepared):
    for folder in (here / "photos").iterdir():
        folder.rename(here / folder.name)
    (here / "photos").rmdir()
    first, _ = prepared(path=".")
    draw(here / "runs/some-run/report/plots/curve.png", 1)
    assert prepared(path=".") == (first, [])
    draw(here / "a/90.png", 900)
    second, lines = prepared(path=".")
    assert "1 new (a/90.png)" in lines[0]
    assert load_dataset(find_data(settings(path=".")).dataset).classes == ["a", "b", "c"] and second != first


def test_synthetic_sets_are_not_compared_with_a_source(here, prepared):
    more = {"source": "synthetic", "path": "null"}
    first = prepared("ingest.synthetic.images=40", **more)
    assert prepared("ingest.synthetic.images=40", **more) == first and first[1] == []


def test_another_partition_does_not_read_the_source_again(here, monkeypatch):
    first = prepare_data(settings())
    monkeypatch.setattr("tasks.data.ingest.ingest.collect", lambda *_: pytest.fail("read again"))
    second = prepare_data(settings("partition.clients=3"))
    assert second.dataset == first.dataset and second.clients != first.clients
    assert prepare_data(settings()) == first and prepare_data(settings("partition.clients=3")) == second
    assert len(list((here / "runs").rglob("images.npy"))) == 1


def test_dvcs_data_set_serves_a_run_with_another_partition(here, monkeypatch):
    from flows.run.prepare_data import ingest_stage, partition_stage

    ingest_stage(settings(), Path("data"))
    partition_stage(settings(), Path("data"))
    monkeypatch.setattr("tasks.data.ingest.ingest.collect", lambda *_: pytest.fail("read again"))
    found = prepare_data(settings("partition.clients=3"))
    assert found.dataset == Path("data/dataset") and (here / "runs") in found.clients.parents


def test_the_dvc_stage_reports_a_changed_source(here, monkeypatch):
    from flows.cli.show import inspect_data
    from flows.run.prepare_data import ingest_stage, partition_stage, source_change
    from flows.stages import federate_stage

    monkeypatch.setattr("tasks.data.statistics.plots.write_partition_figures", write_partition_figures)

    ingest_stage(settings(), Path("data"))
    partition_stage(settings(), Path("data"))
    assert require_data(settings()).dataset == Path("data/dataset")
    assert inspect_data(Path("data"), here / "sheets", 2)["source_change"] == ""
    move_ten(here)
    assert source_change(settings().ingest).startswith("10 moved")
    notes = []
    progress = SimpleNamespace(note=notes.append)
    monkeypatch.setattr("flows.stages.federate", lambda *_, **__: None)
    federate_stage(settings(), progress)
    assert len(notes) == 1 and "10 moved" in notes[0] and "dvc repro --force" in notes[0]
    assert inspect_data(Path("data"), here / "sheets", 2)["source_change"].startswith("10 moved")
    assert prepare_data(settings()).dataset != Path("data/dataset")


def test_the_pipeline_ingests_again_when_dvc_sees_no_change(here, monkeypatch):
    from flows import pipeline
    from flows.run.prepare_data import ingest_stage

    ingest_stage(settings(), Path("data"))
    calls, notes = [], []

    def dvc_stage(root, stage, single, force):
        calls.append(f"{stage} again" if force else stage)
        if force:
            ingest_stage(settings(), Path("data"))

    monkeypatch.setattr(pipeline, "dvc_stage", LocalTask(dvc_stage))
    monkeypatch.setattr(pipeline, "dvc_record", LocalTask(lambda _, stages: calls.append(f"record {stages}")))
    monkeypatch.setattr(pipeline.dvc, "check_repository", lambda _: None)
    monkeypatch.setattr(pipeline, "federate_stage", lambda *_: calls.append("federate"))
    monkeypatch.setattr(pipeline, "report_stage", lambda *_: calls.append("report"))
    progress = SimpleNamespace(note=notes.append, stage=lambda *_: None)
    start = pipeline.PipelineStart(here, settings(), progress)
    monkeypatch.setattr(pipeline, "given_to_flow", lambda: start)
    pipeline.pipeline.fn()
    assert calls == ["ingest", "partition", "federate", "report", "record ['federate', 'report']"]
    assert not notes
    calls.clear()
    delete_five(here)
    pipeline.pipeline.fn()
    assert calls[:3] == ["ingest", "ingest again", "partition"]
    assert "5 removed" in notes[0]


def test_work_left_by_a_killed_process_is_completed(here, prepared):
    digest, _ = prepared()
    (counts,) = here.glob("runs/data/*/ingest.json")
    before = counts.read_text()
    counts.unlink()
    counts.with_name("ingest.json.1-2.tmp").touch()
    counts.with_name(".dataset.parts").mkdir()
    assert prepared() == (digest, [])
    assert counts.read_text() == before
    assert not list(counts.parent.glob("*.tmp")) and not counts.with_name(".dataset.parts").exists()
