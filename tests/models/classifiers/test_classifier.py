"""The plain classifier: features and readout, MOON's projection head, ResNet-50."""

import pytest
import torch

from models.build import new_model, seeded
from models.classifiers.classifier import Classifier
from models.classifiers.resnet import ResNetTokens
from models.registry import ModelSpec
from models.settings.model import BackboneSettings, ModelSettings

NARROW = {"width": 0.125, "depth": 0.5}
PLAIN = ["resnet18", "resnet50", "vit_tiny", "mlp_mixer", "convmixer", "poolformer"]
WIDTHS = {"resnet18": 64, "resnet50": 256, "vit_tiny": 24, "mlp_mixer": 64, "convmixer": 96, "poolformer": 64}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch=2, size=64):
    return torch.rand(batch, 3, size, size, generator=generator(3))


def network(name, projection=0, seed=0):
    settings = ModelSettings(name=name, backbone={"width": 0.125}, timm=NARROW, classifier={"projection": projection})
    return new_model(settings, ModelSpec(("a", "b", "c"), 64), seed).eval()


def test_embeddings_are_the_mean_over_positions_and_the_head_is_linear():
    with seeded(0):
        model = Classifier(ResNetTokens(BackboneSettings(width=0.125)), 3).eval()
    with torch.no_grad():
        grid = model.backbone(images())  # [2, 64, 2, 2]
        features = sum(grid[:, :, i, j] for i in range(2) for j in range(2)) / 4
        assert torch.allclose(model.embed(images()), features, atol=1e-6)
        expected = features @ model.readout.weight.T + model.readout.bias
        assert torch.allclose(model(images()), expected, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("projection", [0, 20])
def test_logits_are_the_head_applied_to_the_embedding(name, projection):
    model = network(name, projection)
    with torch.no_grad():
        features, logits = model.embed(images()), model(images())
    assert features.shape == (2, projection or WIDTHS[name]) and logits.shape == (2, 3)
    assert torch.allclose(logits, features @ model.readout.weight.T + model.readout.bias, atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_the_projection_is_two_layers_on_the_backbones_vector(name):
    model = network(name, 20)
    first, _, second = model.projection
    with torch.no_grad():
        pooled = model.backbone.pooled(images())
        hidden = (pooled @ first.weight.T + first.bias).clamp(min=0)
        expected = hidden @ second.weight.T + second.bias
        assert torch.allclose(model.embed(images()), expected, atol=1e-5)
    assert first.weight.shape == (WIDTHS[name], WIDTHS[name]) and second.weight.shape == (20, WIDTHS[name])


@pytest.mark.parametrize("name", PLAIN)
def test_the_projection_does_not_change_the_backbones_initial_weights(name):
    plain, projected = network(name).backbone.state_dict(), network(name, 20).backbone.state_dict()
    assert all(torch.equal(tensor, projected[key]) for key, tensor in plain.items())


@pytest.mark.parametrize("name", PLAIN)
def test_an_image_has_the_same_output_alone_and_in_a_batch(name):
    model = network(name, 20)
    with torch.no_grad():
        both, one = model(images()), model(images()[:1])
        assert model.embed(images()[:1]).shape == (1, 20)  # no squeezed batch axis
    assert one.shape == (1, 3)
    assert torch.allclose(one, both[:1], atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_a_state_restores_the_network(name):
    model = network(name, 20)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2, generator=generator(1))
    other = network(name, 20, seed=1)
    with torch.no_grad():
        assert not torch.equal(other(images()), model(images()))
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(images()), model(images()))
    counters = [key for key, tensor in model.state_dict().items() if not tensor.is_floating_point()]
    assert all(key.endswith("num_batches_tracked") for key in counters)
    assert bool(counters) == (name in ("resnet18", "resnet50", "convmixer"))
    assert not any(key.endswith((".mean", ".std")) for key in model.state_dict())


def test_resnet50_uses_the_settings_of_timm():
    settings = ModelSettings(name="resnet50", timm={"width": 0.25, "depth": 0.5}, backbone={"width": 2.0})
    model = new_model(settings, ModelSpec(("a", "b"), 64), 0)
    backbone = model.backbone
    # Blocks 3, 4, 6, 3 halved (1.5 and 1.5 round to 2); channels 512 / 4, and a bottleneck ends in four times as many
    assert [len(backbone.get_submodule(name)) for name in backbone.stages] == [2, 2, 3, 2]
    assert backbone.width == model.readout.in_features == 512
