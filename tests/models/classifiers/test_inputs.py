"""Input channels and normalisation of every network."""

import pytest
import torch
from torch import nn

from models.build import build_model
from models.classifiers.backbones import Backbone
from models.registry import NETWORKS, ModelSpec
from models.settings.backbone import InputFormat
from models.settings.model import ModelSettings

SMALL = {"width": 0.125, "depth": 0.1}


def images(batch=2, size=32):
    return torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(3))


def network(name, **options):
    settings = ModelSettings(name=name, backbone={"width": 0.125}, timm=SMALL, **options)
    rows = nn.functional.normalize(torch.randn(3, 64, generator=torch.Generator().manual_seed(0)))
    return build_model(settings, ModelSpec(("a", "b", "c"), 32, rows, rows[:2])).eval()


def test_normalisations():
    x = images()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    assert torch.equal(Backbone().normalise(x), (x - mean) / std)
    assert torch.equal(Backbone(InputFormat(3, "half")).normalise(x), (x - 0.5) / 0.5)
    assert Backbone(InputFormat(3, "none")).normalise(x) is x  # not copied


def test_luminance_is_normalised_by_the_luminance_of_mean_and_deviation():
    x = images()
    grey = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    for kind, mean, std in (("none", 0.0, 1.0), ("half", 0.5, 0.5), ("imagenet", 0.458971, 0.225609)):
        found = Backbone(InputFormat(1, kind)).normalise(x)
        torch.testing.assert_close(found, (grey - mean) / std, atol=1e-5, rtol=1e-5)
    same = images()[:, :1].expand(-1, 3, -1, -1)  # a grey image keeps its values
    torch.testing.assert_close(Backbone(InputFormat(1, "none")).normalise(same), same[:, :1])


def test_the_default_is_the_networks_own():
    expected = dict.fromkeys(
        ("vit_tiny", "vit_small", "vit_base", "mlp_mixer", "lenet5", "fedavg_cnn", "pfl_cnn", "mlp"), "half"
    ) | {"simple_cnn": "none"}
    found = {name: ModelSettings(name=name).inputs for name in NETWORKS}
    for name, inputs in found.items():
        assert inputs == InputFormat(3, expected.get(name, found["resnet18"].normalisation)), name
    assert found["resnet18"].normalisation == "imagenet"
    assert ModelSettings(name="mlp", normalisation="none").inputs.normalisation == "none"


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_network_takes_one_channel(name):
    colour, grey = network(name), network(name, channels=1)
    shapes = {key: tensor.shape for key, tensor in grey.state_dict().items()}
    other = [key for key, tensor in colour.state_dict().items() if tensor.shape != shapes[key]]
    assert len(other) == 1 and grey.state_dict()[other[0]].numel() * 3 == colour.state_dict()[other[0]].numel()
    x = images()
    with torch.no_grad():
        assert grey(x).shape == (2, 3)
        same = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True).expand_as(x)
        torch.testing.assert_close(grey(same), grey(x), atol=1e-4, rtol=1e-3)  # only the luminance counts


@pytest.mark.parametrize("name", ["fmman", "xuesgcn", "resnet18", "resnet50", "vit_tiny"])
def test_every_network_takes_the_normalisation_that_is_set(name):
    plain, other = network(name), network(name, normalisation="none")
    other.load_state_dict(plain.state_dict())
    x = images()
    with torch.no_grad():
        torch.testing.assert_close(other(plain.backbone.normalise(x)), plain(x))
        assert not torch.allclose(other(x), plain(x), atol=1e-4)
