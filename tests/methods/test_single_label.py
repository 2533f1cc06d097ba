"""Methods and networks on single-label data: rounds that train, are evaluated by accuracy, reported and exported."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from flows.federate import federate
from flows.methods import METHODS
from flows.run.inputs import DataPaths
from flows.run.open import read_context
from flows.run.results import model_factory
from flows.settings.files import load_settings
from models.errors import UserError
from models.registry import NETWORKS
from tasks.client.objectives import load_objective
from tasks.core.problem import load_problem
from tasks.core.round_summary import best_score
from tasks.data.dataset import load_dataset
from tests.methods.test_combinations import NARROW, SGD
from tests.support.rounds import partitioned

NAMES = [name for name in METHODS if name != "xuesgcn"]
NETWORK_NAMES = [name for name, entry in NETWORKS.items() if "ce" in entry.objectives and name != "resnet18"]
SCRAP = ("ingest.synthetic.set=scrap", "federation.engine=local", "tracking.enabled=false")


@pytest.fixture(scope="module")
def scrap(tmp_path_factory):
    """64 single-label images in four clients."""
    from tasks.data.ingest.ingest import IngestSettings, ingest

    root = tmp_path_factory.mktemp("scrap")
    settings = IngestSettings(image_size=32, synthetic={"set": "scrap", "images": 64, "sites": 3})
    ingest(settings, root / "dataset", seed=1)
    local = {"scheme": "local"}
    return partitioned(root / "dataset", root / "clients", scheme="iid", local=local)


def settings_of(method, network, *more):
    sets = [f"method.name={method}", f"model.name={network}", *SCRAP, *more]
    sets += ["model.timm.patch=8"] if network in ("vit_tiny", "mlp_mixer", "convmixer") else []
    sets += SGD if method == "scaffold" else ()
    sets += ["federation.clients_per_round=null"] if method in ("cfl", "fedscrap") else []
    if method == "fmman" and NETWORKS[network].cluster_prefix is None:
        sets.append("method.fmman.cluster_on=readout")
    return load_settings(None, ["tiny"], [*NARROW, *sets])


def run(scrap, tmp_path, monkeypatch, settings):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    return federate(settings, DataPaths(scrap.dataset, scrap.clients), out=tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "network"), [(name, "resnet18") for name in NAMES] + [("fedavg", name) for name in NETWORK_NAMES]
)
def test_methods_and_networks_train_on_single_labels(scrap, tmp_path, monkeypatch, method, network):
    summary = run(scrap, tmp_path, monkeypatch, settings_of(method, network))
    (record,) = summary.records
    assert 0 <= record.metrics["accuracy"] <= 1
    assert "macro_ap" not in record.metrics
    assert math.isfinite(record.metrics["loss"])
    for update in record.updates[max(record.updates)]:
        epochs = 1
        assert update.sums["classification"][1] == update.samples * epochs, "a mean per image"


@pytest.mark.slow
def test_a_round_is_reported_by_accuracy_with_a_confusion_matrix(scrap, tmp_path, monkeypatch):
    summary = run(scrap, tmp_path, monkeypatch, settings_of("fedavg", "resnet18", "report.images=3"))
    (record,), dataset = summary.records, load_dataset(scrap.dataset)
    tested = dataset.targets[dataset.indices("test")]
    counts = np.array(record.confusion)
    assert counts.sum(axis=1).tolist() == tested.sum(axis=0).tolist()
    assert counts.trace() / counts.sum() == pytest.approx(record.metrics["accuracy"])
    assert best_score(record) == record.metrics["val_accuracy"]
    assert {"accuracy", "macro_f1", "loss"} == {
        name.split("/")[1] for name in record.metrics if name.startswith("local/")
    }
    report = Path(summary.report).parent
    text = (report / "report.md").read_text()
    assert "accuracy, round 1" in text and "macro AP" not in text
    with (report / "confusion.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["class", *dataset.classes]
    assert [row[0] for row in rows[1:]] == dataset.classes
    assert [[int(cell) for cell in row[1:]] for row in rows[1:]] == record.confusion
    assert (report / "plots/confusion.png").stat().st_size > 0
    metrics = json.loads((report / "metrics.json").read_text())
    assert metrics["accuracy"] == record.metrics["accuracy"] and metrics["best_score"] == best_score(record)
    with (report / "rounds.csv").open() as file:
        assert float(next(csv.DictReader(file))["score"]) == record.metrics["accuracy"]
    model = json.loads((tmp_path / "out/model/model.json").read_text())
    assert model["kind"] == "single_label"


@pytest.mark.slow
def test_the_exported_network_returns_probabilities_that_sum_to_one(scrap, tmp_path, monkeypatch):
    import torch

    summary = run(scrap, tmp_path, monkeypatch, settings_of("fedavg", "resnet18"))
    context = read_context(Path(summary.root))
    assert context.kind == "single_label"
    network, example, metadata = model_factory(context, summary.records[0].model)()
    with torch.no_grad():
        assert network(torch.from_numpy(example)).sum(dim=1).tolist() == pytest.approx([1.0, 1.0])
    assert "sum to 1" in metadata["output"]


def test_a_run_on_data_of_the_other_kind_is_refused_or_another_run(scrap, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"objective\.name fmman is not for single-label data"):
        run(scrap, tmp_path, monkeypatch, load_settings(None, ["tiny"], [*NARROW, "objective.name=fmman"]))
    kinds = {name: load_objective(name).KINDS for name in ("ce", "bce", "asl", "fedlgt")}
    assert kinds["ce"] == ("single_label",) and kinds["bce"] == ("multi_label", "single_label")
    assert kinds["asl"] == kinds["fedlgt"] == ("multi_label",)
    assert load_problem("single_label").objective == "ce"
