"""A run whose sites have models of their own: their models in MLflow, at its end or on demand."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.federate import federate
from flows.federation.progress import Quiet
from flows.run.inputs import DataPaths
from flows.run.site_models import chosen_sites, known_sites, site_models
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.finished_rounds import finished_rounds, load_round
from tasks.core.own_models import own_tensors
from tasks.core.records import RoundRecord
from tasks.core.round_state import RoundState, client_model
from tasks.core.store import Store
from tests.support.rounds import NARROW, partitioned

SETS = (
    "ingest.image_size=32", "partition.scheme=iid", "partition.clients=4", "objective.name=bce", "model.name=resnet18",
    "train.epochs=1", "federation.workers=1", "report.images=0", "tracking.keep_rounds=1",
)  # fmt: skip
PERSONAL = (*SETS, "method.name=fedper", "federation.clients_per_round=3", "federation.rounds=1")
runner = CliRunner()


def test_sites_are_named_one_by_one_or_all_together():
    known = ["a", "b,c", "Mill A", "mill-b"]
    assert chosen_sites(["all"], known) == sorted(known)
    assert chosen_sites(["mill-b, a", "a"], known) == ["a", "mill-b"]
    assert chosen_sites(["b,c"], known) == ["b,c"]  # a name may have a comma


def test_a_misspelt_site_is_named_with_the_nearest_names():
    with pytest.raises(UserError, match="no such site") as caught:
        chosen_sites(["mill a", "mil-b", "zzz", "a"], ["a", "Mill A", "mill-b"])
    error = caught.value
    assert error.found == "mill a, mil-b, zzz" and "a, Mill A, mill-b" in error.expected
    assert "mill a: did you mean Mill A" in error.hint and "mil-b: did you mean mill-b" in error.hint
    assert "zzz" not in error.hint
    with pytest.raises(UserError, match="no site given"):
        chosen_sites([], ["a"])


def test_sites_without_a_model_are_told_apart_from_those_whose_files_are_gone(make_run):
    context, start = make_run(objective="bce", network=NARROW)
    store = context.open_store()
    own = store.put_state("clients/b/model-0001.safetensors", store.get_state(start))
    state = RoundState.starting_from(start)
    for site in "bc":
        state.models[client_model(site)], state.own[site] = own, client_model(site)
    state.models[client_model("c")] = type(own)("clients/c/model-0001.safetensors", own.digest, own.bytes)
    record = RoundRecord(1, state, per_client={"b": {"local/macro_ap": 0.5}})
    models, missing = site_models(context, "squash", record, ["a", "b", "c"])
    assert [(model.site, model.round, model.metrics) for model in models] == [("b", 1, {"local/macro_ap": 0.5})]
    assert "never been trained" in missing["a"] and "gone" in missing["c"]


@pytest.fixture(scope="module")
def data(tiny_data, tmp_path_factory):
    """The tiny images in four clients, each with test images of its own."""
    return partitioned(tiny_data.dataset, tmp_path_factory.mktemp("own") / "clients", scheme="iid",
                       local={"scheme": "local"})  # fmt: skip


class Notes(Quiet):
    """Keeps what a run notes."""

    def __init__(self):
        self.notes: list[str] = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def run_in(data, migrated):
    def call(folder: Path, *sets: str, run_id="r", progress=None):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "mlflow.db").exists():
            shutil.copy(migrated, folder / "mlflow.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDSCENE_RUNS", str(folder))
            paths = DataPaths(data.dataset, data.clients)
            return federate(load_settings(None, ["tiny"], sets), paths, run_id=run_id, progress=progress)

    return call


@pytest.fixture(scope="module")
def finished(run_in, tmp_path_factory):
    """A folder with a run of FedPer of one round, which three of four clients took part in; and its summary."""
    folder = tmp_path_factory.mktemp("site-models") / "runs"
    return folder, run_in(folder, *PERSONAL)


@pytest.fixture
def here(finished, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(finished[0]))
    return finished


def call(*arguments):
    return runner.invoke(app, ["log-models", *arguments])


def in_mlflow(folder, run_id):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_run(run_id).info.experiment_id
    found = client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
    return {model.tags["fedscene.site"]: model for model in found if "fedscene.site" in model.tags}


def probabilities(folder, uri, images):
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    try:
        loaded = mlflow.pyfunc.load_model(uri)
    finally:
        mlflow.set_tracking_uri(before)
    return loaded.predict(images), loaded.metadata.metadata


def expected_probabilities(store, state, site, images, classes):
    """Those of the network with the tensors that the pipeline would export for the site."""
    import torch

    from models.build import load_model
    from models.registry import ModelSpec
    from models.settings.model import ModelSettings

    settings = ModelSettings.model_validate(store.read_json("settings.json")["model"])
    network = load_model(settings, ModelSpec(tuple(classes), 32), own_tensors(store, state, site)).eval()
    with torch.no_grad():
        return torch.sigmoid(network(torch.from_numpy(images))).numpy()


@pytest.mark.integration
def test_the_command_logs_the_models_of_a_finished_run_and_names_sites_without_one(here, data):
    folder, summary = here
    record = summary.records[-1]
    (absent,) = set(data.ids) - set(record.participants)
    one = record.participants[0]
    asked = call("r", "--sites", one, "--json")
    assert asked.exit_code == 0, asked.output
    found = json.loads(asked.stdout)
    assert list(found["models"]) == [one] and found["round"] == 1 and found["missing"] == {}
    assert set(in_mlflow(folder, summary.mlflow_run_id)) == {one}
    everyone = call("r", "--sites", "all")
    assert everyone.exit_code == 1  # one site has no model
    assert f"no model: {absent}: the site has no model of its own after round 1: it has never been" in everyone.stderr
    models = in_mlflow(folder, summary.mlflow_run_id)
    assert set(models) == set(record.participants)
    rng, store = np.random.default_rng(0), Store(folder / "r")
    images = rng.random((3, 3, 32, 32), dtype=np.float32)
    answers = []
    for site, model in models.items():
        assert f"  {site}: {model.model_uri}" in everyone.stdout and model.name == f"site-{site}"
        answer, metadata = probabilities(folder, model.model_uri, images)
        expected = expected_probabilities(store, record.state, site, images, data.classes)
        np.testing.assert_allclose(answer, expected, atol=1e-5)
        assert metadata["site"] == site and metadata["labels"] == list(data.classes) and metadata["round"] == 1
        row = {f"site_model/{key}": value for key, value in record.per_client[site].items() if np.isfinite(value)}
        assert {metric.key: metric.value for metric in model.metrics} == pytest.approx(row)
        assert "site_model/local/loss" in row
        answers.append(answer)
    assert not np.allclose(answers[0], answers[1])  # they are not one model


@pytest.mark.integration
def test_a_misspelt_site_and_a_run_without_personal_models_are_user_errors(here, run_in, data):
    folder, _ = here
    wrong = call("r", "--sites", data.ids[0].replace("client", "clint"))
    assert wrong.exit_code == 2 and "no such site" in wrong.stderr and f"did you mean {data.ids[0]}" in wrong.stderr
    assert call("r").exit_code == 2
    run_in(folder, *SETS, "method.name=fedavg", "federation.rounds=1", "tracking.log_models=false", run_id="shared")
    shared = call("shared", "--sites", "all")
    assert shared.exit_code == 2 and "no site has a model of its own" in shared.stderr and "fedavg" in shared.stderr
    run_in(folder, *PERSONAL, "tracking.enabled=false", run_id="untracked")
    untracked = call("untracked", "--sites", "all")
    assert untracked.exit_code == 2 and "--set tracking.enabled=true" in untracked.stderr
    run_in(folder, *PERSONAL, "tracking.experiment=elsewhere", run_id="untracked")  # now MLflow has it
    assert call("untracked", "--sites", "all").exit_code == 1


@pytest.mark.integration
def test_an_unfinished_run_and_one_that_mlflow_lost_are_user_errors(here, tmp_path, monkeypatch):
    folder, _ = here
    shutil.copytree(folder / "r", tmp_path / "runs/r")
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    lost = call("r", "--sites", "all")
    assert lost.exit_code == 2 and "MLflow does not have this run" in lost.stderr
    settings = tmp_path / "runs/r/settings.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"federation": {"rounds": 3}}))
    open_ = call("r", "--sites", "all")
    assert open_.exit_code == 2 and "not finished" in open_.stderr and "3 rounds" in open_.stderr


@pytest.mark.integration
def test_sites_are_known_and_models_built_without_the_data(here, tmp_path):
    folder, summary = here
    root = shutil.copytree(folder / "r", tmp_path / "r")
    facts = json.loads((root / "run.json").read_text())
    records = summary.records
    whole = known_sites(root, records)
    (root / "run.json").write_text(json.dumps(facts | {"dataset": "/nowhere", "clients": "/nowhere"}))
    assert known_sites(root, records) == whole  # every client was evaluated


@pytest.mark.integration
def test_a_run_can_log_them_at_its_end_and_its_repetition_adds_nothing(run_in, tmp_path, data):
    notes = Notes()
    summary = run_in(tmp_path / "a", *PERSONAL, "tracking.site_models=last", progress=notes)
    models = in_mlflow(tmp_path / "a", summary.mlflow_run_id)
    assert set(models) == set(summary.records[-1].participants)
    assert any("not logged as MLflow models" in line and "never been trained" in line for line in notes.notes)
    run_in(tmp_path / "a", *PERSONAL, "tracking.site_models=last")
    again = in_mlflow(tmp_path / "a", summary.mlflow_run_id)
    assert {site: model.model_id for site, model in again.items()} == {
        site: model.model_id for site, model in models.items()
    }
    other = Notes()
    run_in(tmp_path / "a", *SETS, "method.name=fedavg", "federation.rounds=1", "tracking.site_models=last",
           run_id="shared", progress=other)  # fmt: skip
    assert any("with fedavg no site has a model" in line for line in other.notes)


@pytest.mark.integration
def test_the_best_rounds_models_are_kept_for_it(run_in, tmp_path, monkeypatch, data):
    ditto = (*SETS, "method.name=ditto", "federation.rounds=3")
    monkeypatch.setattr("tasks.core.round_summary.best_score", lambda record: -float(record.round))
    summary = run_in(tmp_path / "a", *ditto, "tracking.site_models=best")
    store = Store(tmp_path / "a/r")
    first = load_round(store, 1).state
    assert all(store.holds(ref) for ref in first.at_clients)
    assert not any(store.holds(ref) for ref in load_round(store, 2).state.at_clients)
    models = in_mlflow(tmp_path / "a", summary.mlflow_run_id)
    assert set(models) == set(data.ids) and {model.tags["round"] for model in models.values()} == {"1"}
    images = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)
    site = data.ids[0]
    answer, _ = probabilities(tmp_path / "a", models[site].model_uri, images)
    np.testing.assert_allclose(answer, expected_probabilities(store, first, site, images, data.classes), atol=1e-5)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "a"))
    assert call("r", "--sites", "all", "--round", "best").exit_code == 0
    # Repeated without the setting, the run keeps the last round's models only
    run_in(tmp_path / "a", *ditto)
    assert not any(store.holds(ref) for ref in first.at_clients) and len(finished_rounds(store, 3)) == 3
    gone = call("r", "--sites", site, "--round", "best")
    assert gone.exit_code == 2 and "gone" in gone.stderr
