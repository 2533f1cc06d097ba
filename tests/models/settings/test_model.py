"""Settings of networks and the registry: what is refused, with which words, and that importing them stays cheap."""

import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError

from models.build import build_model
from models.registry import NETWORKS, ModelSpec
from models.settings.model import BackboneSettings, FmmanSettings, LabelSettings, ModelSettings


def test_defaults_follow_the_paper():
    settings = ModelSettings()
    assert (settings.name, settings.backbone.width, settings.backbone.dim) == ("fmman", 1.0, 512)
    fmman = settings.fmman
    assert (fmman.state_combine, fmman.edge_act, fmman.adj_norm, fmman.z) == ("mul_scalar", "abs", "sym", "image")
    assert (fmman.layers, fmman.heads, fmman.dropout, fmman.ff_ratio) == (3, 4, 0.1, 1.0)
    assert fmman.use_graph and not fmman.gae_residual
    assert settings.labels.prompt == "The photo contains {label}."


@pytest.mark.parametrize(
    ("width", "channels"),
    [(1.0, (64, 128, 256, 512)), (0.25, (16, 32, 64, 128)), (0.125, (8, 16, 32, 64)), (0.3, (16, 40, 80, 152))],
)
def test_channels_are_multiples_of_eight(width, channels):
    # 0.3 * 64 = 19.2 -> 16, 38.4 -> 40, 76.8 -> 80, 153.6 -> 152
    assert BackboneSettings(width=width).channels == channels


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        (BackboneSettings, {"widht": 0.5}, "Extra inputs"),
        (LabelSettings, {"source": "file"}, "labels.file must name"),
        (LabelSettings, {"prompt": "A photo."}, "{label}"),
        (ModelSettings, {"name": "resnet51"}, "fmman, fedlgt, ctran, resnet9, resnet18, resnet34"),
        (ModelSettings, {"fmman": {"heads": 3}}, "must divide the token width 512"),
        (FmmanSettings, {"dropout": 1.0}, "less than 1"),
        (FmmanSettings, {"layers": 0}, "greater than or equal to 1"),
    ],
)
def test_bad_values_are_refused_with_a_reason(section, values, words):
    with pytest.raises(ValidationError, match=words.replace("{", r"\{").replace(".", r"\.")):
        section(**values)


def test_heads_are_checked_only_for_networks_with_a_transformer():
    assert ModelSettings(name="resnet18", fmman=FmmanSettings(heads=3)).fmman.heads == 3


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_network_builds_as_registered(name):
    settings = ModelSettings(name=name, backbone=BackboneSettings(width=0.125), timm={"width": 0.125, "depth": 0.1})
    table = torch.nn.functional.normalize(torch.randn(3, 64, generator=torch.Generator().manual_seed(0)))
    network = NETWORKS[name]
    problem = ModelSpec(
        ("a", "b", "c"),
        64,
        table if network.needs_labels else None,
        table[:2] if network.needs_state_embeddings else None,
    )
    model = build_model(settings, problem).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 3)
    prefix = network.cluster_prefix
    if prefix is not None:
        assert any(key.startswith(prefix) for key, _ in model.named_parameters())


def test_a_network_with_label_tokens_requires_label_embeddings():
    with pytest.raises(AssertionError, match="label embeddings"):
        build_model(ModelSettings(), ModelSpec(("a", "b"), 64))


@pytest.mark.integration
def test_settings_and_registry_import_no_heavy_library():
    heavy = ("torch", "timm", "torchvision", "sklearn", "open_clip", "pandas", "mlflow", "prefect")
    program = f"import sys, models.settings.model, models.registry; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
