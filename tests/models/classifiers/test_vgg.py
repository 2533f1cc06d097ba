"""VGG-11 and -16, ModerateCNN: sizes, torchvision's convolutions, dropout of the hidden layers."""

import pytest
import torch
import torchvision
from torch import nn

from models.build import build_model, new_model
from models.layers.stochastic import SeededDropout, SeededDropout2d, use_generator
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from models.weights.parts import backbone_state, parameter_groups


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch=2, size=32):
    return torch.rand(batch, 3, size, size, generator=generator(3))


def spec(size=32):
    return ModelSpec(tuple(f"label {i}" for i in range(10)), size)


@pytest.mark.parametrize(
    ("name", "norm", "parameters"),
    [("vgg11", "none", 9_750_922), ("vgg11", "batch", 9_756_426), ("vgg16", "none", 15_245_130)],
)  # FedNova's VGG-11; with norm 2 x 2,752 more
def test_published_sizes(name, norm, parameters):
    with torch.device("meta"):
        model = build_model(ModelSettings(name=name, backbone={"norm": norm}), spec())
        theirs = getattr(torchvision.models, name + ("_bn" if norm == "batch" else ""))(weights=None)
    assert sum(p.numel() for p in model.parameters()) == parameters
    shapes = {key: tensor.shape for key, tensor in model.backbone.published.state_dict().items()}
    assert shapes == {k: v.shape for k, v in theirs.state_dict().items() if k.startswith("features.")}


def test_vgg_computes_what_torchvisions_convolutions_do(tmp_path):
    theirs = nn.Module()  # vgg11's own classifier of 120 million weights takes seconds to make
    theirs.features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["A"])
    theirs.classifier = nn.Sequential(nn.Linear(7, 2))  # left out
    torch.save(theirs.state_dict(), tmp_path / "vgg11.pth")
    settings = ModelSettings(name="vgg11", backbone={"weights": tmp_path / "vgg11.pth"})
    model = new_model(settings, spec(64), 0).eval()
    x = images(size=64)
    with torch.no_grad():
        maps = theirs.features(model.backbone.normalise(x))  # [2, 512, 2, 2]
        torch.testing.assert_close(model.backbone.pooled(x), maps.mean((2, 3)))
        first, second = (m for m in model.hidden if isinstance(m, nn.Linear))
        hidden = second(first(maps.mean((2, 3))).relu()).relu()
        torch.testing.assert_close(model.embed(x), hidden)
        torch.testing.assert_close(model(x), model.readout(hidden))


def test_the_hidden_layers_are_the_head():
    model = new_model(ModelSettings(name="vgg11", backbone={"width": 0.125}), spec(), 0)
    head = parameter_groups(model)["head"]
    assert head == ["hidden.1.weight", "hidden.1.bias", "hidden.4.weight", "hidden.4.bias", "readout.weight",
                    "readout.bias"]  # fmt: skip
    assert all(name.startswith("features.") for name in backbone_state(model))


@pytest.mark.parametrize(("name", "expected"), [("vgg11", [0.5, 0.5]), ("moderate_cnn", [0.05, 0.1, 0.1])])
def test_dropout_is_the_published_one_unless_it_is_set(name, expected):
    def rates(**classifier):
        settings = ModelSettings(name=name, backbone={"width": 0.125}, classifier=classifier)
        return [m.p for m in build_model(settings, spec()).modules() if isinstance(m, SeededDropout)]

    assert rates() == expected and rates(dropout=0.0) == [0.0] * len(expected)
    assert rates(dropout=0.2) == pytest.approx([0.4 * rate if name == "vgg11" else 2 * rate for rate in expected])


def test_dropout_of_channels_drops_whole_channels_and_keeps_the_mean():
    layer = SeededDropout2d(0.25).train()
    use_generator(layer, generator())
    x = torch.ones(40, 50, 3, 3)
    out = layer(x)
    flat = out.flatten(2)
    assert torch.equal(flat.amin(-1), flat.amax(-1))  # a channel is dropped or kept as one
    assert out.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)
    assert layer.eval()(x) is x


def test_moderate_cnn_written_down_layer_by_layer():
    settings = ModelSettings(name="moderate_cnn")
    model = new_model(settings, spec(), 0).eval()
    assert sum(p.numel() for p in model.parameters()) == 3_491_530
    torch.manual_seed(0)

    def pair(a, b, c):
        return [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]

    layers = [*pair(3, 32, 64), *pair(64, 128, 128), *pair(128, 256, 256), nn.Flatten(), nn.Linear(4096, 512),
              nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]  # fmt: skip
    with torch.no_grad():
        expected = nn.Sequential(*layers)(model.backbone.normalise(images()))
        torch.testing.assert_close(model(images()), expected)
