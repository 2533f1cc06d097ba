"""Runs that end early or need certain clients: a resumed run ends where an undisturbed one does, bit for bit."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from flows.federate import federate
from flows.federation.progress import Quiet
from flows.run.inputs import DataPaths, require_validation
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.client import train_chunk
from tasks.client.batches import TrainingError
from tasks.core.run_end import read_end
from tasks.core.store import Store
from tasks.data.dataset import load_dataset

SETS = (
    "ingest.image_size=32", "partition.scheme=iid", "partition.clients=4", "method.name=fedavg", "objective.name=bce",
    "model.name=resnet18", "model.backbone.width=0.125", "train.epochs=1", "train.shift=0", "federation.rounds=6",
    "federation.engine=local", "federation.workers=1", "tracking.enabled=false", "report.images=0",
)  # fmt: skip
PATIENCE = ("federation.stop.patience=1", "federation.stop.min_delta=0.9")  # nothing is ever that much better
pytestmark = pytest.mark.slow


class Killed(BaseException):
    """A process that is killed: nothing handles it."""


class Killing(Quiet):
    """Kills the run when the given stage of the given round begins."""

    def __init__(self, round_: int, name: str) -> None:
        self.at = round_, name

    def stage(self, round_, name, clients):
        if (round_, name) == self.at:
            raise Killed


class Notes(Quiet):
    """Keeps the notes and the rounds that were trained."""

    def __init__(self) -> None:
        self.notes, self.trained = [], []

    def note(self, text):
        self.notes.append(text)

    def round_done(self, record, found=False):
        if not found:
            self.trained.append(record.round)


@pytest.fixture
def run(tiny_data, tmp_path, monkeypatch):
    """``run(name, *overrides, progress=None) -> summary``: train the run of that name, or continue it."""
    data = DataPaths(tiny_data.dataset, tiny_data.clients)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path))
    monkeypatch.setattr("tasks.report.report.write_plots", lambda *_: {})

    def call(name: str, *overrides: str, progress=None):
        settings = load_settings(None, ["tiny"], [*SETS, *overrides])
        return federate(settings, data, run_id=name, progress=progress)

    return call


def digests(summary):
    return [record.state.digest for record in summary.records]


@pytest.mark.parametrize("stage", ["local training", "evaluate"])
def test_a_resumed_run_ends_by_patience_where_an_undisturbed_one_does(run, tmp_path, stage):
    straight = run("straight", *PATIENCE)
    assert straight.rounds == 2 and "val_macro_ap has not become better" in straight.stopped
    for round_ in (1, 2):
        with pytest.raises(Killed):
            run("resumed", *PATIENCE, progress=Killing(round_, stage))
    resumed = run("resumed", *PATIENCE)
    assert digests(resumed) == digests(straight) and resumed.stopped == straight.stopped
    assert read_end(Store(tmp_path / "resumed")) == read_end(Store(tmp_path / "straight"))


def test_a_stopped_run_says_so_again_and_goes_on_with_other_settings(run, tmp_path):
    first = run("r", *PATIENCE)
    again = Notes()
    repeated = run("r", *PATIENCE, progress=again)
    assert again.trained == [] and repeated.digest == first.digest and repeated.stopped == first.stopped
    assert f"the run has ended after round 2 of 6: {first.stopped}" in again.notes
    on = Notes()
    longer = run("r", "federation.rounds=3", progress=on)
    assert on.trained == [3] and longer.stopped is None and read_end(Store(tmp_path / "r")) is None
    straight = run("straight", "federation.rounds=3")
    assert digests(longer) == digests(straight), "the rounds do not depend on what ended them"
    shorter = run("r", *PATIENCE)
    assert shorter.rounds == 2 and shorter.digest == first.digest, "the end is where an undisturbed run has it"
    report = json.loads((tmp_path / "r/report/metrics.json").read_text())
    assert report["rounds"] == 2 and first.stopped in (tmp_path / "r/report/report.md").read_text()


def test_an_extended_run_ends_where_one_does_that_was_long_from_the_start(run):
    every = ("evaluation.every=2", *PATIENCE)
    straight = run("straight", *every)
    assert straight.rounds == 4
    assert run("extended", *every, "federation.rounds=3").stopped is None  # round 3 is evaluated too, as the last one
    extended = run("extended", *every)
    assert digests(extended) == digests(straight) and extended.stopped == straight.stopped


def test_time_ends_a_run_after_the_round_and_the_record_holds(run, tmp_path):
    limit = "federation.stop.max_hours=0.0000001"
    first = run("r", limit, "evaluation.every=4")
    assert first.rounds == 1 and "hours are over" in first.stopped
    assert first.metrics["macro_ap"] > 0, "the last round is evaluated, though it is not one of every four"
    again = Notes()
    repeated = run("r", limit, "evaluation.every=4", progress=again)
    assert again.trained == [] and (repeated.rounds, repeated.stopped) == (1, first.stopped)
    straight = run("straight", "evaluation.every=4", "federation.rounds=2")
    longer = run("r", "evaluation.every=4", "federation.rounds=2")
    assert digests(longer) == digests(straight)


def test_a_target_ends_a_run(run):
    found = run("r", "federation.stop.target=5", "federation.stop.metric=val_loss")
    assert found.rounds == 1 and "has reached the target 5" in found.stopped


SCHEDULES = {
    "step": ("train.schedule.name=step", "train.schedule.milestones=[2, 3]"),
    "cosine": ("train.schedule.name=cosine", "train.schedule.rounds=3", "train.schedule.floor=0.1"),
    "warmup": ("train.schedule.name=warmup", "train.schedule.warmup_rounds=2", "train.warmup_steps=2"),
    "sampling and augmentation": (
        "train.sampling=balanced", "train.augment.crop=resized", "train.augment.hue=0.1", "train.augment.erasing=0.5",
        "train.group_lr.backbone=0.1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_resumed_run_with_a_schedule_ends_where_an_undisturbed_one_does(run, name):
    sets = (*SCHEDULES[name], "federation.rounds=3")
    straight = run("straight", *sets)
    with pytest.raises(Killed):
        run("resumed", *sets, progress=Killing(2, "local training"))
    with pytest.raises(Killed):
        run("resumed", *sets, progress=Killing(3, "evaluate"))
    assert digests(run("resumed", *sets)) == digests(straight)
    assert digests(run("workers", *sets, "federation.workers=2")) == digests(straight)
    assert digests(run("plain", "federation.rounds=1"))[0] != digests(straight)[0] or name in ("step", "cosine")
    assert len(set(digests(straight))) == 3


def test_a_resumed_run_with_compression_both_ways_ends_where_an_undisturbed_one_does(run):
    stochastic = "{name: int8, rounding: stochastic}"
    sets = (
        f"aggregation.client_transforms=[{stochastic}]", f"aggregation.downlink_transforms=[{stochastic}]",
        "federation.clients_per_round=3", "federation.rounds=3",
    )  # fmt: skip
    straight = run("straight", *sets)
    for round_, stage in ((2, "local training"), (3, "evaluate")):
        with pytest.raises(Killed):
            run("resumed", *sets, progress=Killing(round_, stage))
    resumed = run("resumed", *sets)
    assert digests(resumed) == digests(straight)
    bytes_down = [[stage.bytes_down for stage in record.stages] for record in straight.records]
    assert [[stage.bytes_down for stage in record.stages] for record in resumed.records] == bytes_down


def test_required_clients_answer_before_training_and_are_in_every_round(run, tiny_data, tmp_path):
    name = tiny_data.ids[2]
    sets = ("federation.clients_per_round=2", f"federation.required=[{name}]", "federation.rounds=3")
    straight = run("straight", *sets)
    assert all(name in record.participants and len(record.participants) == 2 for record in straight.records)
    assert len({tuple(record.participants) for record in straight.records}) > 1, "the other one is drawn"
    answers = json.loads((tmp_path / "straight/roll_call.json").read_text())["clients"]
    assert answers == {name: {"images": 11}}
    with pytest.raises(Killed):
        run("resumed", *sets, progress=Killing(2, "evaluate"))
    assert digests(run("resumed", *sets)) == digests(straight)


def test_a_required_client_that_drops_out_ends_the_run_and_the_others_are_kept(run, tiny_data, monkeypatch, tmp_path):
    name, real, tries = tiny_data.ids[0], train_chunk.train_client, []

    def failing(context, job):
        tries.append(job.client)
        if job.client == name and fails:
            raise TrainingError("the disk is full")
        return real(context, job)

    monkeypatch.setattr(train_chunk, "train_client", failing)
    fails, sets = True, ("federation.rounds=1",)
    with pytest.raises(UserError, match="a required client dropped out of round 1, local training") as caught:
        run("r", *sets, f"federation.required=[{name}]")
    assert f"{name}: " in str(caught.value) and "the disk is full" in str(caught.value)
    fails = False
    summary = run("r", *sets, f"federation.required=[{name}]")
    assert summary.digest == run("straight", *sets).digest
    fails = True
    assert run("without", *sets).records[0].dropped[0].client == name


def test_a_client_that_does_not_answer_ends_the_run_before_training(run, tiny_data, monkeypatch, tmp_path):
    def closed(context, client):
        raise OSError("the disk is away")

    monkeypatch.setattr("tasks.client.roll_call.answer_roll_call", closed)
    notes = Notes()
    with pytest.raises(UserError, match="1 of 1 required clients did not answer the roll call") as caught:
        run("r", f"federation.required=[{tiny_data.ids[1]}]", progress=notes)
    assert "the disk is away" in str(caught.value) and notes.trained == []
    assert not Path(tmp_path / "r/rounds").exists()
    answers = json.loads((tmp_path / "r/roll_call.json").read_text())["clients"]
    assert "the disk is away" in answers[tiny_data.ids[1]]["error"]


def test_unknown_required_clients_and_missing_validation_images_are_refused_at_once(run, tiny_data, tmp_path):
    with pytest.raises(UserError, match="no such client in the partition") as caught:
        run("r", "federation.required=[nobody, client-001]")
    assert "nobody" in str(caught.value) and "client-000" in str(caught.value)
    assert not (tmp_path / "r").exists()
    dataset = load_dataset(tiny_data.dataset)
    without = dataclasses.replace(dataset, splits=np.where(dataset.splits == "val", "train", dataset.splits))
    settings = load_settings(None, ["tiny"], [*SETS, "federation.stop.patience=2"])
    require_validation(settings, dataset, "multi_label")
    with pytest.raises(UserError, match="needs validation images, and the data set has none"):
        require_validation(settings, without, "multi_label")
