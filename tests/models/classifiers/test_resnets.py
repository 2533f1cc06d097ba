"""ResNet-18 to -101 and ResNet-9: sizes, stems, normalisation layers, and training without them."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F

from models.build import build_model, new_model
from models.classifiers.resnet import ResNetTokens
from models.registry import NETWORKS, ModelSpec
from models.settings.backbone import BackboneSettings
from models.settings.model import ModelSettings


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch=2, size=32):
    return torch.rand(batch, 3, size, size, generator=generator(3))


def spec(classes=10, size=32):
    return ModelSpec(tuple(f"label {i}" for i in range(classes)), size)


def network(name, seed=0, classes=10, **backbone):
    return new_model(ModelSettings(name=name, backbone={"width": 0.125} | backbone), spec(classes), seed)


def parameters(name, classes=10, **backbone):
    with torch.device("meta"):
        model = build_model(ModelSettings(name=name, backbone=backbone), spec(classes))
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "backbone", "expected"),
    [
        ("resnet18", 1000, {}, 11_689_512),  # torchvision's
        ("resnet34", 1000, {}, 21_797_672),
        ("resnet101", 1000, {}, 44_549_160),
        ("resnet18", 10, {"stem": "cifar"}, 11_173_962),  # the usual ResNet-18 of CIFAR-10
        ("resnet18", 10, {"norm": "none"}, 11_172_042),  # 9,600 scales and biases less
        ("resnet18", 10, {"norm": "group"}, 11_181_642),
        ("resnet9", 10, {}, 6_573_130),
        ("resnet9", 10, {"norm": "none"}, 6_568_650),  # FedMatch's 6,568,640 and ten biases
    ],
)
def test_published_sizes(name, classes, backbone, expected):
    assert parameters(name, classes, **backbone) == expected


@pytest.mark.parametrize("name", ["resnet34", "resnet50", "resnet101"])
def test_tensor_names_and_shapes_are_torchvisions(name):
    import torchvision

    with torch.device("meta"):
        ours = ResNetTokens(BackboneSettings(name=name)).state_dict()
        theirs = getattr(torchvision.models, name)(weights=None).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items() if not k.startswith("fc.")}


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 2), ("small", 4), ("cifar", 8)])
def test_positions_of_the_last_map(stem, side):
    backbone = ResNetTokens(BackboneSettings(width=0.125, stem=stem)).eval()
    with torch.no_grad():
        assert backbone(images(size=64)).shape == (2, 64, side, side)


@pytest.mark.parametrize(("name", "dim"), [("resnet34", 64), ("resnet50", 256), ("resnet101", 256)])
@pytest.mark.parametrize("network_name", ["fmman", "fedlgt", "ctran", "xuesgcn"])
def test_networks_with_label_tokens_take_every_encoder(network_name, name, dim):
    settings = ModelSettings(name=network_name, backbone={"name": name, "width": 0.125})
    assert settings.backbone.dim == dim
    rows = F.normalize(torch.randn(3, dim, generator=generator()))
    model = build_model(settings, ModelSpec(("a", "b", "c"), 32, rows, rows[:2])).eval()
    with torch.no_grad():
        assert model.backbone.width == dim and model(images()).shape == (2, 3)


NORMS = {"batch": nn.BatchNorm2d, "group": nn.GroupNorm}


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet9", "vgg11"])
def test_normalisation_layers_are_those_that_are_set(name, norm):
    settings = ModelSettings(name=name, backbone={"width": 0.125, "norm": norm}, timm={"width": 0.125})
    model = build_model(settings, spec())
    found = [type(m) for m in model.modules() if isinstance(m, (nn.BatchNorm2d, nn.GroupNorm))]
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert found == ([] if norm == "none" else [NORMS[norm]] * len(convolutions))
    assert bool(list(model.buffers())) and not (norm != "batch" and any("running" in k for k in model.state_dict()))
    assert model.eval()(images()).shape == (2, 10)


def test_groups_are_normalised_each_by_itself():
    model = network("resnet18", norm="group", norm_groups=4)
    layer = model.backbone.bn1
    assert layer.num_groups == 4
    x = torch.randn(2, 8, 5, 5, generator=generator())
    groups = x.view(2, 4, -1)
    expected = (groups - groups.mean(-1, keepdim=True)) / (groups.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(layer(x), expected.view_as(x))


def test_the_default_is_the_networks_own():
    for name in ("resnet18", "resnet9"):
        default, batch = network(name), network(name, norm="batch")
        assert all(torch.equal(t, batch.state_dict()[k]) for k, t in default.state_dict().items())
    assert {name: n.norm for name, n in NETWORKS.items() if n.norm} == dict.fromkeys(
        ("fmman", "fedlgt", "ctran", "xuesgcn", "resnet9", "resnet18", "resnet34", "resnet50", "resnet101"), "batch"
    ) | dict.fromkeys(("vgg11", "vgg16"), "none")


@pytest.mark.parametrize("name", ["resnet18", "resnet101"])
def test_without_norm_the_activations_stay_in_bounds(name):
    """Branches of variance v add v to v: over 33 blocks that would be 2^33; with 1 / 33 of it each at most e."""
    model = network(name, norm="none", width=0.25).eval()
    blocks = [b for stage in model.backbone.stages for b in model.backbone.get_submodule(stage)]
    assert len(blocks) == {"resnet18": 8, "resnet101": 33}[name]
    last = blocks[0].conv2 if name == "resnet18" else blocks[0].conv3
    fan_out = last.out_channels * last.kernel_size[0] ** 2
    assert last.weight.std().item() == pytest.approx((2 / fan_out / len(blocks)) ** 0.5, rel=0.1)
    x = torch.randn(4, 3, 32, 32, generator=generator(1))
    with torch.no_grad():
        found = model.backbone(x * model.backbone.std + model.backbone.mean)  # normalised to a standard normal
    assert 0.1 < found.square().mean().sqrt() < 10


@pytest.mark.parametrize("norm", ["group", "none"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnet9", "vgg11"])
def test_training_lowers_the_loss(name, norm):
    backbone = {"width": 0.125, "norm": norm, "stem": "small"}
    classifier = {"dropout": 0.0} if name == "vgg11" else {}
    settings = ModelSettings(name=name, backbone=backbone, timm={"width": 0.25, "depth": 0.3}, classifier=classifier)
    model, x = new_model(settings, spec(3), 0).train(), images(12)
    targets = torch.arange(12) % 3
    x[range(12), targets] = 1.0  # red, green, blue
    optimiser, losses = torch.optim.Adam(model.parameters(), 1e-3), []
    for _ in range(25):
        loss = F.cross_entropy(model(x), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "resnet18", "backbone": {"name": "resnet34"}}, "set model.name to it"),
        ({"name": "vit_tiny", "backbone": {"norm": "group"}}, "vit_tiny has no choice of it"),
        ({"name": "resnet9", "backbone": {"norm": "group", "norm_groups": 3}}, "norm_groups must divide the channels"),
        ({"name": "resnet18", "backbone": {"norm": "group", "norm_groups": 16, "width": 0.125}}, "8, 16, 32, 64 at"),
        ({"name": "resnet50", "backbone": {"norm": "group", "norm_groups": 16}, "timm": {"width": 0.125}}, "8, 16, 32"),
        ({"name": "resnet18", "classifier": {"dropout": 0.1}}, "resnet18 has no hidden layers with dropout"),
        ({"name": "fmman", "backbone": {"name": "resnet50"}, "fmman": {"heads": 3}}, "the token width 2048"),
    ],
)
def test_settings_that_do_not_fit_the_network_are_refused(values, words):
    with pytest.raises(ValidationError, match=words):
        ModelSettings(**values)


def test_resnet9_written_down_layer_by_layer():
    model = network("resnet9", norm="none").eval()
    b = model.backbone
    x = b.normalise(images())

    def conv(unit, x):
        return F.conv2d(x, unit.conv.weight, padding=1).relu()

    with torch.no_grad():
        x = F.max_pool2d(conv(b.unit2, conv(b.unit1, x)), 2)
        x = x + conv(b.block1.unit2, conv(b.block1.unit1, x))
        x = F.max_pool2d(conv(b.unit4, F.max_pool2d(conv(b.unit3, x), 2)), 2)
        x = F.max_pool2d(x + conv(b.block2.unit2, conv(b.block2.unit1, x)), 4).flatten(1)
        torch.testing.assert_close(model.embed(images()), x)
