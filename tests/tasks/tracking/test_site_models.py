"""Models of single sites in MLflow, beside a run's last and best model."""

import shutil

import numpy as np
import pytest

from tasks.tracking import mlflow_runs
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.site_models import METRICS, SiteModel, find_logged_run, log_site_models, model_name
from tasks.tracking.uri import resolve_uri

SETTINGS = TrackingSettings()
TAGS = {"fedscene.run_id": "ditto-seed1"}
NAMES = (
    "mill-a",
    "Mill A",
    "mill.a",
    "mill/a",
    "mill_a",
    "mill%a",
    "m:'\"a",
    "",
    ".",
    "..",
    "Werk Süd",
    "厂一",
    "x" * 400,
)


def test_names_of_models_tell_sites_apart_and_are_none_that_mlflow_refuses():
    from mlflow.utils.validation import _validate_logged_model_name as validate

    made = {name: model_name(name) for name in NAMES}
    assert len(set(made.values())) == len(NAMES)
    assert made["mill-a"] == "site-mill-a" and made["Mill A"] == "site-Mill A" and made["厂一"] == "site-厂一"
    for name in made.values():
        validate(name)
        assert len(name) < 130


def test_a_setting_that_could_do_nothing_is_refused():
    with pytest.raises(ValueError, match="log_models false"):
        TrackingSettings(site_models="last", log_models=False)


@pytest.fixture
def runs(tmp_path, migrated):
    shutil.copy(migrated, tmp_path / "mlflow.db")
    return tmp_path


def client_of(runs):
    from mlflow.tracking import MlflowClient

    return MlflowClient(resolve_uri(SETTINGS, runs))


def network(factor):
    """A factory of a network whose two probabilities are ``factor`` and twice that, whatever the image."""
    import torch

    class Constant(torch.nn.Module):
        def forward(self, images):
            return images.mean((2, 3))[:, :2] * 0 + torch.tensor([factor, 2 * factor])

    return lambda: (Constant(), np.zeros((2, 3, 4, 4), np.float32), {"labels": ["a", "b"], "site": str(factor)})


def logged(runs, run_id):
    client = client_of(runs)
    found = client.search_logged_models([client.get_run(run_id).info.experiment_id], f"source_run_id = '{run_id}'")
    return {model.name: model for model in found}


@pytest.mark.integration
def test_each_site_has_a_model_with_its_own_metrics_that_loads_as_the_others_do(runs):
    import mlflow.pyfunc

    run_id = mlflow_runs.open_run(SETTINGS, runs, "ditto", {}, TAGS)
    rows = {"mill/a": {"local/accuracy": 0.9, "local/images": 20.0}, "b": {"local/accuracy": 0.4, "local/loss": np.nan}}
    models = [SiteModel(site, 3, network(k / 10), rows[site]) for k, site in enumerate(rows, 1)]
    seen: list[str] = []
    uris = log_site_models(SETTINGS, runs, run_id, models, seen.append)
    assert list(uris) == seen == ["mill/a", "b"]
    # The run's own models of the same round are another matter
    shared = mlflow_runs.finish_run(SETTINGS, runs, run_id, "FINISHED", (), {"last": (3, network(0.3))})
    found = logged(runs, run_id)
    assert set(found) == {model_name("mill/a"), "site-b", "last"}
    assert {model.tags["fedscene.site"] for name, model in found.items() if name != "last"} == {"mill/a", "b"}
    own = {
        model.tags.get("fedscene.site"): {metric.key: metric.value for metric in model.metrics or []}
        for model in found.values()
    }
    assert own["mill/a"] == {f"{METRICS}/local/accuracy": 0.9, f"{METRICS}/local/images": 20.0}
    assert own["b"] == {f"{METRICS}/local/accuracy": 0.4}
    assert own[None] == {}
    outputs = client_of(runs).get_run(run_id).outputs.model_outputs
    assert {(output.model_id, output.step) for output in outputs} == {(model.model_id, 3) for model in found.values()}
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(resolve_uri(SETTINGS, runs))
    try:
        for uri, value in ((uris["mill/a"], 0.1), (uris["b"], 0.2), (shared["last"], 0.3)):
            loaded = mlflow.pyfunc.load_model(uri)
            assert loaded.metadata.metadata["labels"] == ["a", "b"]
            np.testing.assert_allclose(loaded.predict(np.ones((3, 3, 4, 4), np.float32))[:, 0], value, rtol=1e-6)
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.integration
def test_what_is_there_is_not_logged_again_and_what_a_kill_left_is_replaced(runs):
    run_id = mlflow_runs.open_run(SETTINGS, runs, "ditto", {}, TAGS)
    client = client_of(runs)
    experiment = client.get_run(run_id).info.experiment_id
    left = client.create_logged_model(
        experiment, name="site-b", source_run_id=run_id, tags={"round": "2", "fedscene.site": "b"}
    )
    first = log_site_models(SETTINGS, runs, run_id, [SiteModel("a", 2, network(0.1), {"local/accuracy": 0.5})])

    def never():
        pytest.fail("the model of this round is there already")

    second = log_site_models(SETTINGS, runs, run_id, [SiteModel("a", 2, never), SiteModel("b", 2, network(0.2))])
    assert second["a"] == first["a"] and left.model_id not in second["b"]
    later = log_site_models(SETTINGS, runs, run_id, [SiteModel("a", 3, network(0.1))])
    assert later["a"] != first["a"]
    assert len(client.get_metric_history(run_id, f"{METRICS}/local/accuracy")) == 1


@pytest.mark.integration
def test_networks_that_cannot_be_exported_leave_a_tag_and_no_model(runs):
    import torch

    class Branches(torch.nn.Module):
        def forward(self, images):
            return images if float(images.sum()) > 1 else -images

    run_id = mlflow_runs.open_run(SETTINGS, runs, "ditto", {}, TAGS)

    def bad():
        return Branches(), np.zeros((2, 3, 4, 4), np.float32), {}

    assert log_site_models(SETTINGS, runs, run_id, [SiteModel("a", 1, bad), SiteModel("b", 1, bad)]) == {}
    assert "fedscene.model_error.sites" in client_of(runs).get_run(run_id).data.tags and not logged(runs, run_id)
    log_site_models(SETTINGS, runs, run_id, [SiteModel("a", 1, network(0.1))])
    assert "fedscene.model_error.sites" not in client_of(runs).get_run(run_id).data.tags


@pytest.mark.integration
def test_a_run_is_found_by_its_own_id(runs, tmp_path):
    assert find_logged_run(SETTINGS, tmp_path / "nothing", "ditto-seed1") is None
    assert find_logged_run(SETTINGS, runs, "ditto-seed1") is None
    run_id = mlflow_runs.open_run(SETTINGS, runs, "ditto", {}, TAGS)
    assert find_logged_run(SETTINGS, runs, "ditto-seed1") == run_id
    assert find_logged_run(SETTINGS, runs, "ditto-seed2") is None
    assert find_logged_run(TrackingSettings(experiment="nothing"), runs, "ditto-seed1") is None
