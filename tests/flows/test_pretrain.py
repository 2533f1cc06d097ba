"""Pretraining: the settings of central training, the weight file and its card, notes to runs that start from it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from flows.cli.main import app
from flows.federate import federate
from flows.federation.progress import Quiet
from flows.pretrain import central_settings, overrides, pretrain
from flows.run.prepare_data import prepare_data
from flows.run.pretrained import CARD, read_card, start_notes
from flows.settings.files import load_settings
from models.errors import UserError

NETWORK = ("model.name=resnet18", "method.name=fedavg", "train.epochs=1")
QUICK = (
    *NETWORK,
    "ingest.synthetic.images=60",
    "ingest.image_size=32",
    "partition.min_size=4",
    "federation.engine=local",
    "tracking.enabled=false",
    "report.images=4",
)


class Notes(Quiet):
    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    return tmp_path


def quick(*more):
    return load_settings(None, ["tiny"], [*QUICK, *more])


def test_central_settings_are_one_client_and_keep_the_rest():
    settings = load_settings(
        None,
        ["demo"],
        [
            *NETWORK,
            "federation.clients_per_round=2",
            "partition.labelled.where=clients",
            "partition.features.kind=noise",
        ],
    )
    found = central_settings(settings, 12)
    assert (found.method.name, found.partition.scheme, found.partition.clients) == ("fedavg", "iid", 1)
    assert (found.federation.rounds, found.federation.clients_per_round) == (12, None)
    assert (found.partition.labelled.where, found.partition.features.kind) == ("all", "none")
    assert (found.ingest, found.train, found.model) == (settings.ingest, settings.train, settings.model)
    assert central_settings(settings).federation.rounds == settings.federation.rounds


def test_epochs_that_do_not_fill_the_rounds_are_refused():
    settings = load_settings(None, ["tiny"], [*NETWORK, "train.epochs=4"])
    assert central_settings(settings, 8).federation.rounds == 2
    with pytest.raises(UserError, match=r"a multiple of train.epochs = 4\n.*found: 10"):
        central_settings(settings, 10)


@pytest.mark.slow
def test_the_backbone_and_its_card_are_written_and_a_run_starts_from_them(runs):
    settings = central_settings(quick(), 2)
    data, out = prepare_data(settings), runs / "weights" / "a.safetensors"
    found = pretrain(settings, data, out, licence="made here")
    assert found.summary.rounds == 2
    card = json.loads(found.card.read_text())
    assert card == read_card(out).model_dump() | {"weights": "a.safetensors", "sha256": card["sha256"]}
    assert card["data"]["licence"] == "made here"
    assert card["data"]["images"]["train"] + card["data"]["images"]["val"] + card["data"]["images"]["test"] == 60
    assert (card["training"]["epochs"], card["network"]["backbone"]["width"]) == (2, 0.125)
    assert card["result"]["scores"]["macro_ap"] == found.summary.metrics["macro_ap"]

    # the tensors are those of the last round's model, and a run with these settings begins with them
    state = load_file(out)
    model = load_file(runs / "runs" / found.summary.run_id / found.summary.records[-1].model.uri)
    inside = {name: tensor for name, tensor in model.items() if name.startswith("backbone.")}
    assert len(state) == len(inside) == card["network"]["tensors"]
    assert all(any(torch.equal(tensor, other) for other in inside.values()) for tensor in state.values())
    notes = Notes()
    started = quick("federation.rounds=1", "train.lr=1e-9", *found.overrides)
    summary = federate(started, prepare_data(started), progress=notes)
    first = load_file(runs / "runs" / summary.run_id / summary.records[-1].model.uri)
    weight = next(name for name in first if name.endswith("layer4.1.conv2.weight"))
    assert torch.allclose(first[weight], model[weight], atol=1e-5)
    assert any("start: " in line and "resnet18 pretrained on synthetic" in line for line in notes.lines)
    assert any("this run's own data set" in line for line in notes.lines)

    # again: nothing is trained, the file stays; other content is refused before anything is trained
    before = (out.stat().st_mtime_ns, out.read_bytes())
    pretrain(settings, data, out)
    assert (out.stat().st_mtime_ns, out.read_bytes()) == before
    other = central_settings(quick("train.lr=0.01"), 2)
    with pytest.raises(UserError, match=r"exists with another content\n.*\n.*resnet18 pretrained.*\n.*--force"):
        pretrain(other, data, out)
    assert len(list((runs / "runs").glob("*/run.json"))) == 2
    longer = pretrain(central_settings(quick(), 3), data, out)  # the same pretraining, one epoch more
    assert read_card(out).training.epochs == 3
    assert longer.summary.run_id == found.summary.run_id
    with pytest.raises(UserError, match="another content"):
        pretrain(settings, data, out)
    pretrain(other, data, out, force=True)
    assert read_card(out).run.fingerprint != card["run"]["fingerprint"]


def test_a_target_that_is_no_weight_file_of_ours_is_refused(runs, tiny_data):
    from flows.run.inputs import DataPaths

    settings, data = quick(), DataPaths(tiny_data.dataset, tiny_data.clients)
    with pytest.raises(UserError, match=r"--out\n.*ends in .safetensors"):
        pretrain(settings, data, runs / "a.pth")
    (runs / "a.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match="no weights of fedscene pretrain"):
        pretrain(settings, data, runs / "a.safetensors")
    assert (runs / "a.safetensors").read_bytes() == b"other"
    assert not (runs / "runs").exists()


def fabricated(path, dataset, rows, digest="other", normalisation="imagenet"):
    """Write a weight file that says that it was trained on some rows of a data set."""
    from tasks.data.overlap import sample_of

    ids = dataset.sample_ids[rows].tolist()
    card = {
        "version": 1,
        "network": {"name": "resnet18", "normalisation": normalisation},
        "data": {"name": "scrap", "seed": 1, "digest": digest, "images": {"train": len(ids)}},
        "training": {"epochs": 3, "rounds": 3},
        "digest": "0",
        "run": {"fingerprint": "0"},
        "result": {"scores": {"accuracy": 0.5}},
    }
    metadata = {CARD: json.dumps(card), "fedscene.images": ",".join(sample_of(ids))}
    save_file({"x": torch.zeros(1)}, path, metadata)
    return quick(f"model.backbone.weights={path}")


def test_a_run_is_told_which_of_its_images_the_weights_have_seen(tiny_data, tmp_path):
    from tasks.data.dataset import load_dataset

    dataset, path = load_dataset(tiny_data.dataset), tmp_path / "a.safetensors"
    test, train = dataset.indices("test"), dataset.indices("train")
    foreign = fabricated(path, dataset, train[:0])
    assert start_notes(foreign, dataset) == [
        f"start: {path}, resnet18 pretrained on scrap (0 training images, seed 1), 3 epochs, accuracy 0.5000"
    ]
    leak = start_notes(fabricated(path, dataset, [*test[:3], *train[:5]]), dataset)[1:]
    assert leak == [
        f"the weights were pretrained on 3 of this run's {len(test)} test images: the test metrics are too good",
        f"the weights were pretrained on 5 of this run's {len(train)} train images: "
        "the start is not from foreign images",
    ]
    same = start_notes(fabricated(path, dataset, train, dataset.digest), dataset)
    assert "this run's own data set" in same[1]
    other = start_notes(fabricated(path, dataset, train[:0], normalisation="half"), dataset)
    assert other[1:] == ["the weights were pretrained with model.normalisation=half, and this run uses imagenet"]


@pytest.mark.parametrize(
    ("network", "named"),
    [
        (["model.name=resnet18", "model.backbone.width=0.25"], False),
        (["model.name=lenet5", "model.channels=1", "model.backbone.width=2.0"], True),
        (["model.name=mlp", "model.mlp.hidden=[30, 20]"], True),
        (["model.name=resnet34"], True),
        (["model.name=vit_tiny"], True),
    ],
)
def test_the_settings_of_a_run_that_fits_the_weights(runs, network, named):
    given = load_settings(None, [], ["method.name=fedavg", *network])
    found = overrides(given, Path("w/a.safetensors"))
    assert found[-1].endswith(".weights=w/a.safetensors")
    assert ("model.name=" in found[0]) == named
    # a settings file with another backbone changes nothing
    other = ["model.backbone.width=0.125", "model.channels=3", "model.name=fmman", "model.backbone.stem=small"]
    used = load_settings(None, [], ["method.name=fedavg", *other, *found, *([] if named else network[:1])]).model
    part = used.timm if "vit" in used.name else used.backbone
    assert str(part.weights) == "w/a.safetensors"
    assert (used.name, used.inputs) == (given.model.name, given.model.inputs)
    before = given.model.timm if "vit" in used.name else given.model.backbone
    assert part.model_copy(update={"weights": None}) == before


@pytest.mark.parametrize("metadata", [None, {}, {CARD: "{"}, {CARD: "[]"}, {CARD: '{"version": 1}'}])
def test_files_without_a_card_are_no_news(metadata, tiny_data, tmp_path):
    from tasks.data.dataset import load_dataset

    path = tmp_path / "a.safetensors"
    save_file({"x": torch.zeros(1)}, path, metadata)
    assert start_notes(quick(f"model.backbone.weights={path}"), load_dataset(tiny_data.dataset)) == []
    (tmp_path / "b.safetensors").write_bytes(b"damaged")
    assert read_card(tmp_path / "b.safetensors") is read_card(tmp_path / "none.safetensors") is None


@pytest.mark.integration
def test_an_interrupted_pretraining_resumes_to_the_same_weights(runs, monkeypatch):
    """Under Prefect and MLflow: two sittings give the tensors of one, and one run in MLflow."""
    options = [part for value in QUICK[:5] for part in ("--set", value)]
    command = ["pretrain", "--preset", "tiny", *options, "--set", "federation.engine=prefect", "--json"]

    def sitting(epochs, name):
        done = CliRunner().invoke(app, [*command, "--epochs", str(epochs), "--out", name])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    first, second = sitting(1, "a.safetensors"), sitting(3, "a.safetensors")
    assert (first["run_id"], first["mlflow_run_id"]) == (second["run_id"], second["mlflow_run_id"])
    assert second["overrides"][-1] == "model.backbone.weights=a.safetensors"
    monkeypatch.setenv("FEDSCENE_RUNS", str(runs / "undisturbed"))
    whole = sitting(3, "b.safetensors")
    assert whole["digest"] == second["digest"]
    assert read_card(runs / "a.safetensors").digest == read_card(runs / "b.safetensors").digest
