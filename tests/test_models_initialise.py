"""Start values: from the generator alone, for every tensor, with the promised spread."""

import math

import pytest
import torch
from torch import nn

from models.initialise import initialise, new_model
from models.registry import NETWORKS
from models.settings import ModelSettings


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def fresh(name="fmman", seed=0, width=0.125, **fmman):
    settings = ModelSettings(name=name, backbone={"width": width}, fmman=fmman)
    table = nn.functional.normalize(torch.ones(4, settings.backbone.dim)) if NETWORKS[name].needs_labels else None
    return new_model(settings, list("abcd"), table, generator(seed))


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("mode", ["mul_scalar", "mul_embed", "add_embed"])
def test_models_do_not_depend_on_the_global_generator(name, mode):
    torch.manual_seed(1)
    first = fresh(name, state_combine=mode).state_dict()
    torch.manual_seed(2)
    second = fresh(name, state_combine=mode).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_another_seed_is_another_model():
    first, second = fresh(seed=0), fresh(seed=1)
    for key, tensor in first.named_parameters():
        drawn = tensor.dim() > 1 or key.startswith("readout")  # norms and eq 5's a, b are constants
        if drawn:
            assert not torch.equal(tensor, second.get_parameter(key)), key


def test_every_tensor_is_written_again():
    model = fresh()
    expected = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(77)
    initialise(model, generator(0))
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[key]), key


def test_a_tensor_without_a_rule_is_named():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(1))

    with pytest.raises(AssertionError, match=r"1\.gain"):
        initialise(nn.Sequential(nn.Linear(2, 2), Odd()), generator())


def test_spreads():
    model = fresh(width=0.5)
    conv = model.backbone.layer4[1].conv2.weight  # [256, 256, 3, 3]: fan_out 256 * 9
    assert conv.std().item() == pytest.approx(math.sqrt(2 / (256 * 9)), rel=0.02)
    linear = model.transformer.layers[0].linear1
    for tensor in (linear.weight, linear.bias, model.readout.weight, model.readout.bias):
        assert tensor.abs().max().item() <= 1 / 16  # 1 / sqrt(256)
    # A uniform within b has deviation b / sqrt(3)
    assert linear.weight.std().item() == pytest.approx(1 / 16 / math.sqrt(3), rel=0.02)
    norm, batch_norm = model.transformer.norm, model.backbone.bn1
    assert set(norm.weight.tolist()) == set(batch_norm.running_var.tolist()) == {1.0}
    assert set(norm.bias.tolist()) == set(batch_norm.running_mean.tolist()) == {0.0}


def test_eq_5_starts_at_its_setting():
    graph = fresh(gae_scale=3.0).graph
    assert (graph.scale.item(), graph.shift.item()) == (3.0, 0.0)
