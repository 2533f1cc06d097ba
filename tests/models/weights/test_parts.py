"""A network's backbone and head: which tensors belong to which, and weights that one network passes to another."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from models.build import new_model
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings
from models.weights.parts import backbone_state, parameter_groups

SMALL = {"width": 0.125, "depth": 0.1}


def network(name, seed=0, classes=4, **options):
    settings = ModelSettings(name=name, backbone={"width": 0.125} | options, timm=SMALL | options)
    rows = nn.functional.normalize(torch.randn(classes, 64, generator=torch.Generator().manual_seed(0)))
    labels = tuple(f"label {i}" for i in range(classes))
    return new_model(settings, ModelSpec(labels, 64, rows, rows[:2]), seed)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_each_parameter_is_in_the_backbone_or_in_the_head(name):
    model = network(name)
    groups = parameter_groups(model)
    assert list(groups) == ["backbone", "head"] and all(groups.values())
    names = [key for key, _ in model.named_parameters()]
    assert sorted(groups["backbone"] + groups["head"]) == sorted(names)
    assert {id(model.get_parameter(key)) for key in groups["backbone"]} == {id(p) for p in model.backbone.parameters()}
    assert {"readout.weight", "readout.bias"} <= set(groups["head"])


def test_parameters_that_do_not_train_are_in_no_group():
    model = network("resnet18")
    model.backbone.conv1.weight.requires_grad_(False)
    assert "backbone.conv1.weight" not in {key for keys in parameter_groups(model).values() for key in keys}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_backbones_state_starts_another_network_of_other_classes(name, tmp_path):
    trained = network(name, seed=1, classes=3)
    state = backbone_state(trained)
    assert not [key for key in state if key.startswith(("backbone.", "readout."))]
    save_file(state, tmp_path / "backbone.safetensors")
    model = network(name, seed=2, weights=tmp_path / "backbone.safetensors")
    other = network(name, seed=2)
    for key, tensor in model.state_dict().items():
        source = trained if key.startswith("backbone.") else other
        assert torch.equal(tensor, source.state_dict()[key]), key


@pytest.mark.parametrize("name", ["fmman", "xuesgcn", "resnet18"])
def test_networks_with_one_encoder_share_its_weights(name, tmp_path):
    save_file(backbone_state(network("ctran", seed=1)), tmp_path / "backbone.safetensors")
    model = network(name, seed=2, weights=tmp_path / "backbone.safetensors")
    assert torch.equal(model.backbone.conv1.weight, network("ctran", seed=1).backbone.conv1.weight)
