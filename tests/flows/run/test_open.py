"""Opening a run: its id, its lock, and that a refused command touches nothing."""

import json

import pytest

from flows.run.find import find_run
from flows.run.inputs import DataPaths, read_inputs
from flows.run.open import open_run, read_context
from flows.settings.files import load_settings
from models.errors import UserError
from models.label_aware.label_embeddings import write_label_file
from tasks.data.partition.settings import PartitionSettings
from tasks.data.partition.stage import partition

SETS = ["ingest.image_size=32", "partition.scheme=iid", "partition.clients=4"]


@pytest.fixture
def opened(tiny_data, tmp_path, monkeypatch):
    """``opened(*overrides, run_id=None)`` opens and closes a run, and returns it."""
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    data = DataPaths(tiny_data.dataset, tiny_data.clients)

    def call(*overrides, run_id=None):
        with open_run(load_settings(None, ["tiny"], [*SETS, *overrides]), data, run_id) as run:
            return run

    call.data = data
    return call


def test_the_id_depends_on_the_settings_that_can_change_a_result(opened):
    first = opened()
    assert opened().id == first.id
    for same in (
        "federation.rounds=9",
        "federation.workers=1",
        "federation.clients_per_task=2",
        "tracking.keep_rounds=1",
    ):
        assert opened(same).id == first.id, same
    for other in (
        "train.lr=0.1",
        "seed=8",
        "federation.bn_policy=local",
        "objective.fmman.tau=0.4",
        "method.name=fedavg",
    ):
        assert opened(other).id != first.id, other


@pytest.mark.parametrize("val", [0, 0.2])
def test_validation_images_are_those_of_the_partition(tiny_data, tmp_path, val):
    settings = PartitionSettings(
        scheme="iid", clients=3, images="all", local={"scheme": "local", "val": val, "test": 0.2}, min_size=4
    )
    partition(tiny_data.dataset, settings, tmp_path / "clients", seed=1)
    data = DataPaths(tiny_data.dataset, tmp_path / "clients")
    wanted = load_settings(None, ["tiny"], [*SETS, "federation.stop.patience=2"])
    if val:
        assert len(read_inputs(wanted, data).dataset.indices("val"))
    else:
        with pytest.raises(UserError, match=r"federation\.stop needs validation images[\s\S]*partition\.local\.val"):
            read_inputs(wanted, data)


def test_settings_of_other_methods_do_not_change_the_id(opened):
    assert opened("method.name=fedavg").id == opened("method.name=fedavg", "method.fmman.clusters=1").id


def test_the_id_depends_on_the_content_of_a_label_file(opened, tiny_data, tmp_path):
    import torch

    file = tmp_path / "labels.safetensors"
    source = ["model.labels.source=file", f"model.labels.file={file}"]
    write_label_file(file, tiny_data.classes, torch.eye(16))
    first = opened(*source)
    write_label_file(file, tiny_data.classes, torch.eye(16).flip(0))
    assert opened(*source).id != first.id


def test_a_refused_command_leaves_the_run_as_it_was(opened):
    run = opened(run_id="mine")

    def files():
        return {path: path.read_bytes() for path in run.root.rglob("*") if path.is_file() and path.name != ".lock"}

    before = files()
    with pytest.raises(UserError, match="other settings"):
        opened("model.labels.center=true", run_id="mine")
    assert files() == before


def test_a_run_that_is_open_cannot_be_opened_again(opened):
    settings = load_settings(None, ["tiny"], SETS)
    with open_run(settings, opened.data), pytest.raises(UserError, match="another process"):
        opened()


@pytest.mark.parametrize("name", ["../x", ".", "..", "a/b", "a::b", "", "data", "x" * 101, "a'b", "-rf"])
def test_an_invalid_run_id_is_refused(opened, name):
    with pytest.raises(UserError, match="not a valid run id"):
        opened(run_id=name)


def test_more_clusters_than_clients_are_refused(opened):
    with pytest.raises(UserError, match=r"clusters is 5, but only 4"):
        opened("method.fmman.clusters=5", "partition.clients=6")


def test_the_run_used_last_is_found_by_default(opened, tmp_path):
    with pytest.raises(UserError, match="no run yet"):
        find_run(tmp_path / "runs", None)
    opened(run_id="one")
    last = opened(run_id="two")
    assert find_run(tmp_path / "runs", None) == last.root
    with pytest.raises(UserError, match="no such run"):
        find_run(tmp_path / "runs", "three")


def test_the_context_of_a_run_is_read_from_its_folder_without_a_write_or_a_lock(opened):
    run = opened(run_id="mine")
    before = {path: path.stat().st_mtime_ns for path in run.root.rglob("*")}
    with open_run(load_settings(None, ["tiny"], SETS), opened.data, "mine"):  # no second lock is taken
        held = {path: path.stat().st_mtime_ns for path in run.root.rglob("*")}
        assert read_context(run.root) == run.context
        assert {path: path.stat().st_mtime_ns for path in run.root.rglob("*")} == held
    assert before.keys() == held.keys()


def test_the_context_of_a_run_of_other_code_is_refused(opened):
    run = opened(run_id="mine")
    facts = json.loads((run.root / "run.json").read_text())
    (run.root / "run.json").write_text(json.dumps(facts | {"fingerprint": "other"}))
    with pytest.raises(UserError, match="other settings, data or code"):
        read_context(run.root)
