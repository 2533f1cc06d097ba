"""Settings: presets, overrides, and the errors on invalid ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.settings.dotted import flat, merge, nested
from flows.settings.explain import explain
from flows.settings.files import load_preset, load_settings, parse_overrides, presets
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.yaml_text import parse_yaml

ROOT = Path(__file__).parents[3]


def refused(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_settings(None, ["tiny"], overrides)
    return str(caught.value)


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_its_comment_shows_a_command(name):
    load_settings(None, [name])
    head = (ROOT / "flows" / "settings" / "presets" / f"{name}.yaml").read_text()
    assert head.startswith("# ") and f"--preset {name}" in head


def test_params_yaml_is_the_demo():
    assert as_values(load_settings(ROOT / "params.yaml")) == as_values(load_settings(None, ["demo"]))


def test_params_yaml_names_every_leaf_so_that_dvc_can_track_it():
    written = flat(parse_yaml((ROOT / "params.yaml").read_text()))
    leaves = {key: value for key, value in flat(as_values(Settings())).items() if value != {} or "label" in key}
    assert leaves.keys() <= written.keys(), "fedscene settings --out params.yaml --preset demo"


def test_the_settings_page_is_up_to_date_and_leaves_no_key_unexplained():
    page = explain()
    assert (ROOT / "docs" / "settings.md").read_text() == page, "fedscene settings --explain > docs/settings.md"
    assert not [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]


def test_overrides_are_dotted_and_typed():
    settings = load_settings(
        None,
        ["tiny"],
        ["train.lr=1e-3", "method.name=fedavg", "federation.clients_per_round=3", "train.grad_clip=null"],
    )
    assert settings.train.lr == 1e-3
    assert settings.method.name == "fedavg"
    assert settings.federation.clients_per_round == 3
    assert settings.train.grad_clip is None


def test_later_sources_override_only_the_keys_that_they_set():
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    assert parse_overrides(["a.b=[1, x]", "c="]) == {"a.b": [1, "x"], "c": None}
    assert flat({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.learning_rate=0.1", ["train.learning_rate", "unknown key"]),
        ("train.epoch=3", ["train.epoch", "did you mean epochs"]),
        ("nothing.here=1", ["nothing", "unknown key"]),
        ("train.epochs=many", ["train.epochs", "valid integer", "'many'"]),
        ("train.epochs=true", ["epochs must be a number", "True"]),
        ("federation.rounds=0", ["federation.rounds", "greater than or equal to 1", "0"]),
        ("federation.clients_per_round=true", ["clients_per_round must be a number"]),
        ("method.name=fedprocks", ["method.name", "no such method", "fedavg, fmman"]),
        ("objective.name=hinge", ["objective.name", "no such objective"]),
        ("model.name=vgg", ["model.name", "fmman, fedlgt, ctran"]),
        ("train.momentum=0.9", ["train", "momentum is 0.9, but it is for optimizer sgd"]),
        ("federation.precision=bf16", ["federation", "CUDA"]),
        ("federation.device=gpu", ["federation.device", "gpu"]),
        ("train.lr", ["section.key=value", "train.lr"]),
        ("train.lr=[1", ["--set train.lr", "valid YAML"]),
    ],
)
def test_the_error_on_a_wrong_setting_names_key_expected_and_found(override, parts):
    message = refused(override)
    for part in parts:
        assert part in message


def test_more_clusters_than_clients_is_refused_before_any_work():
    message = refused("partition.scheme=iid", "partition.clients=2", "method.fmman.clusters=3")
    assert "method.fmman.clusters is 3" in message and "only 2 clients" in message
    message = refused("federation.clients_per_round=1", "method.fmman.clusters=2")
    assert "only 1 clients" in message
    load_settings(None, ["tiny"], ["partition.scheme=iid", "partition.clients=2", "method.name=fedavg"])


def test_more_clients_a_round_than_clients_is_refused():
    assert "clients_per_round 5" in refused(
        "partition.scheme=iid", "partition.clients=4", "federation.clients_per_round=5", "method.name=fedavg"
    )


def test_a_learning_rate_that_is_zero_before_the_last_round_is_refused():
    cosine = ["train.schedule.name=cosine", "train.schedule.rounds=5"]
    found = refused(*cosine, "federation.rounds=6")
    assert "learning rate is zero in round 6, the last of federation.rounds" in found
    load_settings(None, ["tiny"], [*cosine, "federation.rounds=5"])
    load_settings(None, ["tiny"], [*cosine, "federation.rounds=6", "train.schedule.floor=0.1"])


def test_a_crop_that_is_wider_than_the_images_is_refused():
    found = refused("train.shift=0", "train.augment.crop=pad", "train.augment.padding=64", "ingest.image_size=64")
    assert "train.augment.padding 64 is not below ingest.image_size 64" in found


def test_an_objective_that_does_not_fit_the_network_is_refused():
    found = refused("model.name=resnet18", "objective.name=fmman")
    assert "objective.name fmman does not fit model.name resnet18" in found


def test_all_faults_are_named_at_once():
    message = refused("train.epochs=0", "federation.rounds=no rounds")
    assert "train.epochs" in message and "federation.rounds" in message


def test_a_missing_preset_and_a_broken_file_are_named(tmp_path):
    with pytest.raises(UserError, match="no such preset"):
        load_preset("demoo")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1\n")
    with pytest.raises(UserError, match="not valid YAML"):
        load_preset(str(broken))
    with pytest.raises(UserError, match="cannot read"):
        load_settings(tmp_path / "absent.yaml")


def test_a_key_that_appears_twice_is_refused_with_its_line(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("train:\n  lr: 0.1\n  lr: 0.2\n")
    with pytest.raises(UserError, match=r'not valid YAML[\s\S]*params\.yaml[\s\S]*"lr", line 3'):
        load_settings(file)


def test_settings_cannot_be_changed_after_validation():
    settings = load_settings(None, ["tiny"])
    with pytest.raises(ValueError, match="frozen"):
        settings.train.lr = 0.5


def test_settings_are_read_without_the_heavy_libraries():
    """Each would add a second or more to every command."""
    heavy = ["torch", "prefect", "mlflow", "dvc", "sklearn", "matplotlib", "pandas"]
    code = (
        f"import sys, flows.cli.main, flows.settings.schema; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
