"""The networks of timm's classes: published sizes, weight files, sizes that fit, training on a CPU."""

import pytest
import timm
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from timm.models import get_pretrained_cfg

from models.build import build_model, check_weights, new_model, weight_files
from models.classifiers.timm_classifiers import can_resample, uses_global_generator
from models.errors import UserError
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from models.settings.timm import FAMILIES, TimmSettings
from models.weights.loading import load_backbone_weights

# parameters with 17 outputs, width of the embedding
SIZES = {
    "vit_tiny_patch16_224": ("vit_tiny", 5_527_697, 192),
    "vit_small_patch16_224": ("vit_small", 21_672_209, 384),
    "vit_base_patch16_224": ("vit_base", 85_811_729, 768),
    "mixer_s16_224": ("mlp_mixer", 18_023_985, 512),
    "mixer_b16_224": ("mlp_mixer", 59_124_545, 768),
    "convmixer_768_32": ("convmixer", 20_354_321, 768),
    "convmixer_1024_20_ks9_p14": ("convmixer", 23_375_889, 1024),
    "poolformer_s12": ("poolformer", 11_410_897, 512),
    "poolformer_s24": ("poolformer", 20_884_689, 512),
    "resnet50": ("resnet50", 23_542_865, 2048),
}
SMALL = {
    "vit_tiny": {"width": 0.125, "depth": 0.2, "patch": 8},
    "vit_small": {"width": 0.125, "depth": 0.2, "patch": 8},
    "vit_base": {"width": 0.125, "depth": 0.2, "patch": 8},
    "mlp_mixer": {"width": 0.125, "depth": 0.25, "patch": 8},
    "convmixer": {"width": 0.125, "depth": 0.1, "patch": 6},
    "poolformer": {"width": 0.125, "depth": 0.25},
    "resnet50": {"width": 0.125, "depth": 0.3},
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch=2, size=48):
    return torch.rand(batch, 3, size, size, generator=generator(3))


def problem(size=48, classes=3):
    return ModelSpec(tuple(f"label {i}" for i in range(classes)), size)


def small(name, size=48):
    return new_model(ModelSettings(name=name, timm=SMALL[name]), problem(size), 0)


def on_meta(name, size=224, **options):
    with torch.device("meta"):  # shapes without values: no time, no memory
        return build_model(ModelSettings(name=name, timm=options), problem(size, 17))


@pytest.mark.parametrize("variant", list(SIZES))
def test_published_sizes(variant):
    name, parameters, width = SIZES[variant]
    model = on_meta(name, variant=variant)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.readout.in_features == model.backbone.width == width
    with torch.device("meta"):
        published = timm.create_model(variant, pretrained=False, num_classes=0)
    shapes = {key: tensor.shape for key, tensor in model.backbone.published.state_dict().items()}
    assert shapes == {key: tensor.shape for key, tensor in published.state_dict().items()}


@pytest.mark.parametrize(("name", "parameters"), [("vit_tiny", 5_539_217), ("mlp_mixer", 59_678_225)])
def test_vit_and_mixer_depend_on_the_image_size(name, parameters):
    model = on_meta(name, 256, variant="mixer_b16_224" if name == "mlp_mixer" else None)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("name", list(FAMILIES))
def test_the_default_is_the_first_variant_with_its_normalisation(name):
    first = next(iter(FAMILIES[name]))
    assert TimmSettings().chosen(name)[0] == first
    backbone, config = small(name).backbone, get_pretrained_cfg(first)
    assert tuple(backbone.mean.flatten().tolist()) == pytest.approx(config.mean)
    assert tuple(backbone.std.flatten().tolist()) == pytest.approx(config.std)


@pytest.mark.parametrize(
    ("variant", "size"),
    [("resnet50", 48), ("vit_tiny_patch16_224", 224), ("mixer_s16_224", 224), ("convmixer_768_32", 48),
     ("poolformer_s12", 48)],
)  # fmt: skip
def test_weight_files_of_timm_compute_what_timm_computes(variant, size, tmp_path):
    name = SIZES[variant][0]
    published = timm.create_model(variant, pretrained=False, num_classes=5).eval()
    save_file(published.state_dict(), tmp_path / "weights.safetensors")
    settings = ModelSettings(name=name, timm={"variant": variant, "weights": tmp_path / "weights.safetensors"})
    assert weight_files(settings) == [tmp_path / "weights.safetensors"]
    model = new_model(settings, problem(size), 0).eval()
    config, x = get_pretrained_cfg(variant), images(1, size)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (config.mean, config.std))
    with torch.no_grad():
        published.reset_classifier(0)
        assert torch.allclose(model.embed(x), published((x - mean) / std), atol=1e-4)


def test_positions_of_another_image_size_are_resampled_and_only_those(tmp_path):
    backbone = small("vit_tiny", 48).backbone  # 6 x 6 patches of 8 pixels
    state = {key: tensor.clone() for key, tensor in backbone.net.state_dict().items()}
    ramp = torch.linspace(-1, 1, 12).view(1, 1, 12).expand(1, 12, 12)  # grows to the right
    grid = torch.cat([torch.full((1, 1, 24), 9.0), ramp.reshape(1, 144, 1).expand(1, 144, 24)], dim=1)
    save_file({**state, "pos_embed": grid.contiguous()}, tmp_path / "vit.safetensors")
    load_backbone_weights(backbone, tmp_path / "vit.safetensors")
    found = backbone.net.pos_embed.detach()
    assert torch.equal(found[:, 0], grid[:, 0])
    inner = found[0, 1:, 0].view(6, 6)
    assert torch.allclose(inner, inner[:1].expand(6, 6), atol=1e-6)  # constant downwards
    # Halved: new pixel k lies between old 2k and 2k + 1, where the ramp is -1 + (4k + 1) / 11; the filter is four old
    # pixels wide to each side, so the border reaches all but the middle two
    assert torch.allclose(inner[0, 2:4], torch.tensor([-1 + 9 / 11, -1 + 13 / 11]), atol=1e-5)
    assert (inner[0].diff() > 0.2).all()
    for wrong in (grid[:, :100], grid[:, :, :20], grid[0], grid.to(torch.int8), grid.to_sparse()):
        assert not can_resample(wrong, found)


def test_token_weights_of_another_image_size_are_refused(tmp_path):
    save_file(small("mlp_mixer", 64).backbone.net.state_dict(), tmp_path / "mixer.safetensors")
    with pytest.raises(UserError, match=r"mixer_s16_224.*\n.*mlp_tokens.fc1.weight \(32, 64\) instead of \(32, 36\)"):
        load_backbone_weights(small("mlp_mixer", 48).backbone, tmp_path / "mixer.safetensors")


@pytest.mark.parametrize("name", ["vit_tiny", "mlp_mixer"])
def test_images_of_another_size_are_refused(name):
    with pytest.raises(AssertionError, match="match model"):
        small(name, 48)(images(size=64))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("vit_tiny", {"variant": "mixer_s16_224"}, "vit_tiny has vit_tiny_patch16_224;"),
        ("mlp_mixer", {"variant": "convmixer_768_32"}, "mlp_mixer has mixer_s16_224, mixer_b16_224;"),
        ("resnet18", {"variant": "vit_huge"}, "there are resnet50, vit_tiny_patch16_224, vit_small_patch16_224"),
        ("poolformer", {"patch": 4}, "timm.patch is 4, but poolformer has no patches"),
        ("resnet50", {"patch": 4}, "timm.patch is 4, but resnet50 has no patches"),
    ],
)
def test_options_that_do_not_fit_the_network_are_refused(name, options, words):
    with pytest.raises(ValidationError, match=words):
        ModelSettings(name=name, timm=options)


@pytest.mark.parametrize(
    ("name", "options"), [("vit_tiny", {"depth": 0.25}), ("resnet50", {"depth": 0.5}), ("convmixer", {"patch": 8})]
)
def test_weights_of_the_same_size_fit_and_others_are_refused_with_the_expected_size(name, options, tmp_path):
    made = {"width": 0.125, "depth": 0.125} | options
    model = new_model(ModelSettings(name=name, timm=made), problem(48), 1)
    save_file(model.state_dict(), tmp_path / "run.safetensors")  # as a finished round keeps it
    settings = ModelSettings(name=name, timm=made | {"weights": tmp_path / "run.safetensors"})
    again = new_model(settings, problem(48), 2).backbone.state_dict()
    assert all(torch.equal(tensor, again[key]) for key, tensor in model.backbone.state_dict().items())
    other = settings.model_copy(update={"timm": settings.timm.model_copy(update={"width": 0.25})})
    with pytest.raises(UserError, match=r"with width 0\.25[\s\S]* instead of [\s\S]*of that very size"):
        check_weights(other, 48)


def test_weights_with_the_same_patch_fit_and_weights_of_other_networks_are_refused():
    assert ModelSettings(name="convmixer", timm={"weights": "w.pth", "patch": 7}).timm.patch == 7
    assert ModelSettings(name="resnet18", timm={"weights": "w.pth"}).weights is None
    assert ModelSettings(name="vit_tiny", backbone={"weights": "w.pth"}).weights is None


@pytest.mark.parametrize(
    ("name", "options", "dims", "blocks"),
    [
        ("vit_tiny", {"width": 0.3, "depth": 0.25}, (48,), (3,)),  # 57.6 -> 2 * 24; 3 heads of 16
        ("mlp_mixer", {"width": 0.3, "depth": 0.1}, (152,), (1,)),  # 153.6 -> 19 * 8; 0.8 -> 1
        ("convmixer", {"width": 0.125, "depth": 2.0}, (96,), (64,)),
        ("poolformer", {"width": 0.125, "depth": 0.3}, (8, 16, 40, 64), (1, 1, 4, 1)),
        ("resnet50", {"width": 0.125, "depth": 0.1}, (8, 16, 32, 64), (1, 1, 1, 1)),
    ],
)
def test_width_and_depth_scale_the_variant(name, options, dims, blocks):
    size = TimmSettings(**options).scaled(name)
    assert (size.dims, size.blocks) == (dims, blocks)
    model = on_meta(name, **options)
    expected = 4 * dims[-1] if name == "resnet50" else dims[-1]  # bottlenecks end in four times the channels
    assert model.readout.in_features == model.backbone.width == expected


@pytest.mark.parametrize(
    ("name", "size", "patch", "words"),
    [
        ("vit_tiny", 50, None, r"a multiple of 16 pixels(.|\n)*50 pixels(.|\n)*48 or 64, or .* one of 5, 10, 25, 50"),
        ("mlp_mixer", 60, 7, r"a multiple of 7 pixels(.|\n)*image_size to 56 or 63"),
        ("mlp_mixer", 8, None, r"a multiple of 16 pixels(.|\n)*image_size to 16, or model.timm.patch to one of 4, 8"),
        ("convmixer", 10, 14, "at least 14 pixels"),
    ],
)
def test_images_that_the_patches_do_not_cover_are_refused(name, size, patch, words):
    with pytest.raises(UserError, match=words):
        on_meta(name, size, patch=patch)


@pytest.mark.parametrize(("name", "size"), [("convmixer", 50), ("poolformer", 45), ("resnet50", 33)])
def test_networks_without_fixed_patches_take_any_image_size(name, size):
    with torch.no_grad():
        assert small(name, size).eval()(images(size=size)).shape == (2, 3)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_training_lowers_the_loss_without_the_global_generator(name):
    model, x = small(name).train(), images(8)
    targets = (torch.rand(8, 3, generator=generator(2)) > 0.5).float()
    optimiser, losses = torch.optim.Adam(model.parameters(), 2e-3), []
    state = torch.get_rng_state()
    for _ in range(12):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert losses[-1] < 0.7 * losses[0]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "option", ["drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate", "patch_drop_rate"]
)
def test_dropout_in_timms_modules_is_detected(option):
    plain = {"img_size": 32, "embed_dim": 24, "depth": 2}
    assert uses_global_generator(timm.create_model("vit_tiny_patch16_224", **plain, **{option: 0.1}))
    assert not uses_global_generator(timm.create_model("vit_tiny_patch16_224", **plain, **{option: 0.0}))
