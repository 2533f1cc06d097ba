"""The backbone against timm's and torchvision's ResNet-18, and weight files of all kinds."""

import pytest
import torch
from safetensors.torch import save_file

from models.build import check_weights, new_model
from models.classifiers.backbones import IMAGENET_MEAN, IMAGENET_STD
from models.classifiers.resnet import ResNetTokens
from models.errors import UserError
from models.registry import ModelSpec
from models.settings.model import BackboneSettings, ModelSettings
from models.weights.loading import load_backbone_weights

PROBLEM = ModelSpec(("a", "b"), 64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch=2, size=64):
    return torch.rand(batch, 3, size, size, generator=generator(3))


@pytest.fixture(scope="module")
def full():
    """A ResNet-18 of torchvision with weights and statistics that nobody else has."""
    from torchvision.models import resnet18

    model = resnet18(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2, generator=generator(1))
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5, generator=generator(2))
    return model.eval()


def last_map(full, x):
    """The map before pooling, spelled out with torchvision's parts; input normalised by hand."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    x = full.maxpool(full.relu(full.bn1(full.conv1((x - mean) / std))))
    return full.layer4(full.layer3(full.layer2(full.layer1(x))))


def test_size_and_parts_at_width_one():
    backbone = ResNetTokens(BackboneSettings())
    assert sum(p.numel() for p in backbone.parameters()) == 11_176_512
    state = backbone.state_dict()
    statistics = [v for n, v in state.items() if n.endswith(("running_mean", "running_var"))]
    assert sum(isinstance(m, torch.nn.BatchNorm2d) for m in backbone.modules()) == 20
    assert sum(v.numel() for v in statistics) == 9_600


@pytest.mark.parametrize(("width", "dim"), [(0.125, 64), (0.25, 128)])
@pytest.mark.parametrize(("size", "side"), [(64, 2), (96, 3), (100, 4)])
def test_map_of_narrow_backbones(width, dim, size, side):
    backbone = ResNetTokens(BackboneSettings(width=width)).eval()
    with torch.no_grad():
        assert backbone(images(size=size)).shape == (2, dim, side, side)
    assert backbone.width == dim == BackboneSettings(width=width).dim


@pytest.mark.parametrize("ending", ["pth", "safetensors", "old.pth"])
def test_loaded_weights_compute_what_torchvision_computes(full, tmp_path, ending):
    path, state = tmp_path / f"resnet18.{ending}", full.state_dict()
    if ending == "safetensors":
        save_file(state, path)
    elif ending == "pth":
        torch.save(state, path)
    else:  # early PyTorch versions had no counters
        torch.save({n: v for n, v in state.items() if not n.endswith("num_batches_tracked")}, path)
    backbone = ResNetTokens(BackboneSettings()).eval()
    load_backbone_weights(backbone, path)
    with torch.no_grad():
        assert torch.allclose(backbone(images()), last_map(full, images()), atol=1e-4)


def test_timms_parameter_names_are_accepted(tmp_path):
    import timm

    model = timm.create_model("resnet18", pretrained=False)
    save_file(model.state_dict(), tmp_path / "timm.safetensors")
    backbone = ResNetTokens(BackboneSettings())
    load_backbone_weights(backbone, tmp_path / "timm.safetensors")
    assert torch.equal(backbone.layer4[1].conv2.weight, model.layer4[1].conv2.weight)


def broken(state):
    return {
        "missing": ({n: v for n, v in state.items() if n != "layer2.0.conv1.weight"}, "layer2.0.conv1.weight"),
        "unknown": ({**state, "layer5.weight": torch.zeros(1)}, "layer5.weight"),
        "shape": ({**state, "conv1.weight": torch.zeros(64, 1, 7, 7)}, r"conv1.weight \(64, 1, 7, 7\)"),
        "not tensors": ({"epoch": 3}, "not a state dict"),
        "list": ([torch.ones(1)], "not a state dict"),
        "numbers": ({1: torch.ones(1)}, "not a state dict"),
        "nan": ({**state, "layer1.0.bn1.bias": torch.full((64,), float("nan"))}, "layer1.0.bn1.bias holds NaN"),
        "inf": ({**state, "bn1.running_var": torch.full((64,), float("inf"))}, "bn1.running_var holds"),
        "complex": ({**state, "conv1.weight": state["conv1.weight"] + 0j}, "conv1.weight is torch.complex64"),
        "sparse": ({**state, "conv1.weight": state["conv1.weight"].to_sparse()}, "conv1.weight is sparse"),
    }


CASES = ["missing", "unknown", "shape", "not tensors", "list", "numbers", "nan", "inf", "complex", "sparse"]


@pytest.mark.filterwarnings("ignore:.*[Ss]parse")
@pytest.mark.parametrize("case", CASES)
def test_weights_that_do_not_fit_are_named(full, tmp_path, case):
    content, words = broken(full.state_dict())[case]
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(UserError, match=words):
        load_backbone_weights(ResNetTokens(BackboneSettings()), tmp_path / "weights.pth")


class Payload:
    """Something that only an unsafe unpickling would build."""


@pytest.mark.parametrize("name", ["nowhere.pth", "noise.pth", "noise.safetensors", "empty.pth", "object.pth"])
def test_missing_damaged_and_dangerous_files_are_refused(tmp_path, name):
    (tmp_path / "noise.pth").write_bytes(b"no weights here")
    (tmp_path / "noise.safetensors").write_bytes(b"no weights here")
    (tmp_path / "empty.pth").touch()
    torch.save({"conv1.weight": Payload()}, tmp_path / "object.pth")
    with pytest.raises(UserError, match=name) as caught:
        load_backbone_weights(ResNetTokens(BackboneSettings(width=0.125)), tmp_path / name)
    # PyTorch's own message advises to load the file in the way that executes it
    assert "weights_only" not in str(caught.value)
    assert ("Python objects, which are not executed" in str(caught.value)) == (name == "object.pth")


def test_only_the_backbone_of_a_new_model_is_loaded_from_the_file(full, tmp_path):
    torch.save(full.state_dict(), tmp_path / "weights.pth")
    plain = new_model(ModelSettings(name="resnet18"), ModelSpec(("a", "b"), 64), 0)
    settings = ModelSettings(name="resnet18", backbone={"weights": tmp_path / "weights.pth"})
    loaded = new_model(settings, ModelSpec(("a", "b"), 64), 0)
    assert torch.equal(loaded.backbone.conv1.weight, full.conv1.weight)
    assert torch.equal(loaded.backbone.bn1.running_var, full.bn1.running_var)
    assert torch.equal(loaded.readout.weight, plain.readout.weight)


@pytest.mark.parametrize("whole", [True, False])
def test_a_narrow_network_can_start_from_a_backbone_of_the_same_size(tmp_path, whole):
    narrow = {"width": 0.125, "stem": "small"}
    trained = new_model(ModelSettings(name="resnet18", backbone=narrow), PROBLEM, 1)
    state = trained.state_dict() if whole else trained.backbone.state_dict()
    save_file(state, tmp_path / "model.safetensors")  # a finished round's model, or its backbone alone
    settings = ModelSettings(name="ctran", backbone=narrow | {"weights": tmp_path / "model.safetensors"})
    before = torch.get_rng_state()
    check_weights(settings, 64)
    assert torch.equal(torch.get_rng_state(), before)
    model = new_model(settings, PROBLEM, 2)
    assert all(torch.equal(t, model.backbone.state_dict()[n]) for n, t in trained.backbone.state_dict().items())


@pytest.mark.parametrize(
    ("size", "found"),
    [
        ({"width": 0.125}, r"conv1.weight \(64, 3, 7, 7\) instead of \(8, 3, 7, 7\)"),
        ({"width": 1.0, "stem": "small"}, r"conv1.weight \(64, 3, 7, 7\) instead of \(64, 3, 3, 3\)"),
    ],
)
def test_published_weights_at_another_size_are_refused_with_the_expected_size(full, tmp_path, size, found):
    save_file(full.state_dict(), tmp_path / "imagenet.safetensors")
    settings = ModelSettings(name="fmman", backbone=size | {"weights": tmp_path / "imagenet.safetensors"})
    with pytest.raises(UserError, match=found) as refused:
        check_weights(settings, 64)
    text = str(refused.value)
    assert f"with width {size['width']:g}, stem {size.get('stem', 'imagenet')}" in text
    assert "width 1.0, stem imagenet" in text and "rounds/NNNN/model.safetensors" in text


def test_a_run_is_refused_before_any_image_is_read(full, tmp_path):
    from typer.testing import CliRunner

    from flows.cli.main import app

    save_file(full.state_dict(), tmp_path / "imagenet.safetensors")
    sets = [f"model.backbone.weights={tmp_path / 'imagenet.safetensors'}", "ingest.source=voc", "ingest.path=/nowhere"]
    done = CliRunner().invoke(app, ["run", "--preset", "tiny", *(w for text in sets for w in ("--set", text))])
    assert done.exit_code == 2 and "do not fit the backbone" in done.stderr and "/nowhere" not in done.stderr
