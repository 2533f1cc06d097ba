"""LeNet-5, simple-cnn, FedAvgCNN and MLP: published sizes, what they compute, image sizes, training."""

import pytest
import torch
from torch import nn

from models.build import build_model, check_weights, new_model
from models.errors import UserError
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from models.weights.parts import backbone_state

SMALL = ["lenet5", "simple_cnn", "fedavg_cnn", "mlp"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch=2, size=28):
    return torch.rand(batch, 3, size, size, generator=generator(3))


def network(name, size=28, seed=0, classes=10, **options):
    settings = ModelSettings(name=name, **options)
    return new_model(settings, ModelSpec(tuple(f"label {i}" for i in range(classes)), size), seed)


@pytest.mark.parametrize(
    ("name", "channels", "size", "parameters"),
    [
        ("simple_cnn", 1, 28, 44_426),  # NIID-Bench
        ("simple_cnn", 3, 32, 62_006),
        ("fedavg_cnn", 1, 28, 582_026),  # PFLlib
        ("fedavg_cnn", 3, 32, 878_538),  # 2,432 + 51,264 + 1600 x 512 + 512 + 5,130
        ("lenet5", 1, 28, 61_706),
        ("lenet5", 1, 32, 61_706),
        ("mlp", 1, 28, 52_500),  # 784 x 64 + 64 + 64 x 30 + 30 + 300 + 10
    ],
)
def test_published_sizes(name, channels, size, parameters):
    model = network(name, size, channels=channels)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(images(size=size)).shape == (2, 10)


def grey(x):
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def published(name):
    """The networks written down layer by layer for 1 x 28 x 28, as in the public codes."""

    def convs(first, second, **pad):
        return [nn.Conv2d(1, first, 5, **pad), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(first, second, 5), nn.ReLU(),
                nn.MaxPool2d(2), nn.Flatten()]  # fmt: skip

    layers = {  # functions: only the layers that are made draw numbers
        "simple_cnn": lambda: [*convs(6, 16), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()],
        "lenet5": lambda: [*convs(6, 16, padding=2), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()],
        "fedavg_cnn": lambda: [*convs(32, 64), nn.Linear(1024, 512), nn.ReLU()],
        "mlp": lambda: [nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 30), nn.ReLU()],
    }[name]()
    return nn.Sequential(*layers, nn.LazyLinear(10))


@pytest.mark.parametrize("name", SMALL)
def test_networks_compute_what_the_published_ones_do_with_the_same_initial_weights(name):
    model = network(name, channels=1)
    torch.manual_seed(0)  # PyTorch's initial weights in the order of the layers
    other = published(name)
    x = grey(images()) if name == "simple_cnn" else 2 * grey(images()) - 1
    with torch.no_grad():
        torch.testing.assert_close(model(images()), other(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_hidden_units_and_channels_follow_the_width(name):
    half, model = network(name, backbone={"width": 0.5}), network(name)
    assert half.backbone.width == model.backbone.width // 2 == half.readout.in_features
    for key, tensor in half.backbone.named_parameters():
        assert tensor.shape[0] == model.backbone.get_parameter(key).shape[0] // 2
    assert half(images()).shape == (2, 10)


def test_the_hidden_layers_of_the_mlp_are_a_setting():
    model = network("mlp", mlp={"hidden": [20, 10, 5]})
    assert [m.out_features for m in model.modules() if isinstance(m, nn.Linear)] == [20, 10, 5, 10]


@pytest.mark.parametrize(("name", "least"), [("lenet5", 12), ("simple_cnn", 16), ("fedavg_cnn", 16), ("mlp", 1)])
def test_the_smallest_image(name, least):
    assert network(name, least)(images(size=least)).shape == (2, 10)
    if least > 1:
        with pytest.raises(
            UserError, match=rf"too small for {name}[\s\S]*at least {least} pixels[\s\S]*{least - 1} pix"
        ):
            network(name, least - 1)


@pytest.mark.parametrize("name", SMALL)
def test_embeddings_pass_through_moons_projection(name):
    model = network(name, classifier={"projection": 20}).eval()
    with torch.no_grad():
        features = model.embed(images())
        assert features.shape == (2, 20)
        assert torch.allclose(model(images()), features @ model.readout.weight.T + model.readout.bias, atol=1e-5)


@pytest.mark.parametrize("name", SMALL)
def test_training_lowers_the_loss(name):
    model, x = network(name, classes=3).train(), images(12)
    targets = torch.arange(12) % 3
    optimiser, losses = torch.optim.Adam(model.parameters(), 3e-3), []
    for _ in range(25):
        loss = nn.functional.cross_entropy(model(x), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_small_network_starts_from_a_backbone_of_the_same_size(tmp_path):
    from safetensors.torch import save_file

    trained = network("fedavg_cnn", seed=1, classes=3)
    save_file(backbone_state(trained), tmp_path / "w.safetensors")
    settings = ModelSettings(name="fedavg_cnn", backbone={"weights": tmp_path / "w.safetensors"})
    check_weights(settings, 28)
    model = new_model(settings, ModelSpec(("a", "b"), 28), 2)
    assert torch.equal(model.backbone.conv2.weight, trained.backbone.conv2.weight)
    with pytest.raises(UserError, match=r"a fedavg_cnn with width 1, 3 channels, images of 32 pixels"):
        check_weights(settings, 32)


def test_another_networks_weights_are_refused(tmp_path):
    torch.save(backbone_state(network("lenet5")), tmp_path / "w.pth")
    settings = ModelSettings(name="simple_cnn", backbone={"weights": tmp_path / "w.pth"})
    with pytest.raises(UserError, match="do not fit the backbone"):
        new_model(settings, ModelSpec(("a",), 28), 0)


def test_meta_tensors_cost_nothing():
    with torch.device("meta"):
        model = build_model(ModelSettings(name="mlp", mlp={"hidden": [65536]}), ModelSpec(("a",), 1024))
    assert sum(p.numel() for p in model.backbone.parameters()) == 3 * 1024 * 1024 * 65536 + 65536
