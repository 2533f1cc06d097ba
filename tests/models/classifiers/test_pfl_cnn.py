"""pfl's CNN, written down a second time layer by layer, and its initial weights."""

import math

import torch
from torch import nn

from models.build import new_model
from models.registry import ModelSpec
from models.settings.model import ModelSettings


def make(**settings):
    return new_model(ModelSettings(name="pfl_cnn", **settings), ModelSpec(tuple("abcdefghij"), 32), 0)


def test_pfl_cnn_written_down_layer_by_layer():
    model = make().eval()
    assert sum(p.numel() for p in model.parameters()) == 1_626_442
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
              nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Linear(128, 10)]  # fmt: skip
    other = nn.Sequential(*layers)
    other.load_state_dict(dict(zip(other.state_dict(), model.state_dict().values(), strict=True)))
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(model(images), other(2 * images - 1))


def test_initial_weights_are_glorots():
    weight = make().backbone.layers[7].weight  # 12544 -> 128
    bound = math.sqrt(6 / (12544 + 128))
    assert 0.999 * bound < weight.abs().max().item() <= bound
    assert abs(weight.mean().item()) < 0.01 * bound


def test_dropout_is_half_as_strong_after_the_pooling():
    rates = [layer.p for layer in make().modules() if hasattr(layer, "p")]
    assert rates == [0.25, 0.5]
    assert [layer.p for layer in make(classifier={"dropout": 0.0}).modules() if hasattr(layer, "p")] == [0.0, 0.0]
