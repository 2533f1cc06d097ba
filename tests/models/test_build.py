"""Initial weights: from the seed alone, for every tensor, with the expected standard deviations."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from models.build import build_model, new_model
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings
from tasks.core.store import state_digest


def fresh(name="fmman", seed=0, width=0.125, timm=None, **fmman):
    sizes = {"width": width, "depth": 0.1, **(timm or {})}
    settings = ModelSettings(name=name, backbone={"width": width}, timm=sizes, fmman=fmman)
    rows = nn.functional.normalize(torch.ones(4, settings.backbone.dim))
    table = rows if NETWORKS[name].needs_labels else None
    words = rows[:2] if NETWORKS[name].needs_state_embeddings else None
    return new_model(settings, ModelSpec(tuple("abcd"), 64, table, words), seed)


def digest(model):
    return state_digest(model.state_dict())


@pytest.mark.parametrize("name", list(NETWORKS))
def test_equal_seeds_give_equal_models_and_leave_the_global_generator_alone(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = digest(fresh(name))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    torch.rand(7)
    assert digest(fresh(name)) == first


@pytest.mark.parametrize("mode", ["mul_embed", "add_embed"])
def test_models_with_state_embeddings_do_not_depend_on_the_global_generator(mode):
    torch.manual_seed(1)
    first = digest(fresh("fmman", state_combine=mode))
    torch.manual_seed(2)
    assert digest(fresh("fmman", state_combine=mode)) == first


def test_models_do_not_depend_on_threads_that_build_others():
    expected = {seed: digest(fresh("resnet18", seed)) for seed in range(4)}
    settings, spec = ModelSettings(name="resnet18", backbone={"width": 0.125}), ModelSpec(("a",), 64)

    def build(seed):
        build_model(settings, spec)  # as a client's thread does
        return digest(fresh("resnet18", seed))

    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(build, list(expected) * 8))
    assert built == list(expected.values()) * 8


def test_another_seed_gives_another_model():
    first, second = fresh(seed=0), fresh(seed=1)
    for key, tensor in first.named_parameters():
        drawn = tensor.dim() > 1 or key.startswith("readout")  # norms and eq 5's a, b are constants
        if drawn:
            assert not torch.equal(tensor, second.get_parameter(key)), key


@pytest.fixture
def uninitialised_memory_is_nan():
    """New memory holds NaN until it is written."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_tensor_is_initialised(name, uninitialised_memory_is_nan):
    assert torch.empty(3).isnan().all()
    for key, tensor in fresh(name).state_dict().items():
        assert tensor.isfinite().all(), key


def test_standard_deviations_of_initial_weights():
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


def test_the_scale_of_eq_5_starts_at_its_setting():
    graph = fresh(gae_scale=3.0).graph
    assert (graph.scale.item(), graph.shift.item()) == (3.0, 0.0)


def deviation(tensor):
    return tensor.detach().std().item()


def test_vision_transformers_start_with_a_standard_deviation_of_two_hundredths():
    net = fresh("vit_tiny", width=0.5, timm={"depth": 0.25}).backbone.net  # 96 wide, patches of 16 pixels
    for tensor in (net.pos_embed, net.blocks[0].attn.qkv.weight, net.blocks[2].mlp.fc1.weight):
        assert deviation(tensor) == pytest.approx(0.02, rel=0.2 if tensor.numel() < 1000 else 0.05)
    assert net.cls_token.abs().max() < 1e-5  # timm's own
    assert net.blocks[0].attn.qkv.bias.abs().max() == 0.0
    bound = 1 / math.sqrt(3 * 16 * 16)  # PyTorch's own for the patch convolution
    assert deviation(net.patch_embed.proj.weight) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert net.patch_embed.proj.weight.abs().max() <= bound and net.patch_embed.proj.bias.abs().max() <= bound


def test_mixers_are_initialised_as_in_timm():
    net = fresh("mlp_mixer", width=0.5, timm={"patch": 8}).backbone.net  # 256 wide, 64 patches
    # Glorot: variance 2 / (fan_in + fan_out), token mixing 64 -> 128, channel mixing 256 -> 1024
    assert deviation(net.blocks[0].mlp_tokens.fc1.weight) == pytest.approx(math.sqrt(2 / (64 + 128)), rel=0.03)
    assert deviation(net.blocks[0].mlp_channels.fc1.weight) == pytest.approx(math.sqrt(2 / (256 + 1024)), rel=0.03)
    spread = 1 / math.sqrt(3 * 8 * 8)  # LeCun: variance 1 / fan_in, cut at two deviations of the uncut normal
    assert deviation(net.stem.proj.weight) == pytest.approx(spread, rel=0.03)
    assert net.stem.proj.weight.abs().max() <= 2 * spread / 0.8796
    assert net.stem.proj.bias.abs().max() == 0.0 < net.blocks[0].mlp_tokens.fc1.bias.abs().max() < 1e-5


def test_depthwise_convolutions_are_initialised_by_their_fan_in():
    depthwise = fresh("convmixer", width=0.5).backbone.net.blocks[0][0].fn[0]  # [384, 1, 7, 7]: 49 inputs an output
    assert deviation(depthwise.weight) == pytest.approx(1 / 7 / math.sqrt(3), rel=0.03)
    assert 0 < depthwise.bias.abs().max() <= 1 / 7


def test_poolformer_has_small_initial_layer_scales():
    net = fresh("poolformer", width=0.5).backbone.net
    scales = [tensor for key, tensor in net.named_parameters() if key.endswith("scale")]
    assert len(scales) == 8 and all(set(tensor.tolist()) == {scales[0][0].item()} for tensor in scales)
    assert scales[0][0].item() == pytest.approx(1e-5)
    assert deviation(net.stages[1].blocks[0].mlp.fc1.weight) == pytest.approx(0.02, rel=0.05)
    assert set(net.head.norm.weight.tolist()) == {1.0} and net.stem.conv.bias.abs().max() == 0.0


def test_the_head_of_a_vision_transformer_is_initialised_as_a_linear_layer():
    model = fresh("vit_tiny", width=0.5)
    assert deviation(model.readout.weight) == pytest.approx(1 / math.sqrt(96) / math.sqrt(3), rel=0.1)


def attentions(model):
    return [(name, part) for name, part in model.named_modules() if type(part).__name__ == "SelfAttention"]


@pytest.mark.parametrize("name", ["fmman", "fedlgt", "ctran"])
def test_attention_is_initialised_as_pytorchs(name):
    torch.manual_seed(0)
    dim = 256
    model = fresh(name, width=0.5)
    parts = attentions(model)
    assert len(parts) == (5 if name == "fmman" else 3)  # with the two of the decoder over the labels
    theirs = nn.MultiheadAttention(dim, 4)
    bound = math.sqrt(6 / (dim + 3 * dim))  # Glorot over the stacked [3d, d]
    for weight in (theirs.in_proj_weight, *(part.in_proj.weight for _, part in parts)):
        assert weight.shape == (3 * dim, dim)
        assert 0.999 * bound < weight.abs().max().item() <= bound
        assert deviation(weight) == pytest.approx(bound / math.sqrt(3), rel=0.01)
    for where, part in parts:
        assert part.in_proj.bias.abs().max() == theirs.in_proj_bias.abs().max() == 0.0, where
        # out_proj is a linear layer in PyTorch too, so C-Tran's and FedLGT's `apply(weights_init)` draws both again
        for tensor in (part.out_proj.weight, part.out_proj.bias):
            assert 0.9 / math.sqrt(dim) < tensor.abs().max().item() <= 1 / math.sqrt(dim), where


def test_initial_attention_logits_have_the_standard_deviation_of_pytorchs():
    torch.manual_seed(0)
    tokens, heads, dim = torch.randn(64, 256), 4, 256

    def spread(weight):
        query, key, _ = (tokens @ weight.T).chunk(3, dim=-1)
        shape = (64, heads, dim // heads)
        return (torch.einsum("inw,jnw->nij", query.view(shape), key.view(shape)) / math.sqrt(dim // heads)).std().item()

    theirs = spread(nn.MultiheadAttention(dim, heads).in_proj_weight)
    ours = spread(fresh("ctran", width=0.5).transformer.layers[0].attention.in_proj.weight)
    assert theirs == pytest.approx(0.5, rel=0.03) and ours == pytest.approx(theirs, rel=0.05)


def test_graph_convolutions_are_initialised_by_their_outputs():
    model = fresh("xuesgcn", width=0.5)  # 256 wide, graph width 1024
    for layer, outputs in ((model.graph1, 1024), (model.graph2, 256)):
        bound = 1 / math.sqrt(outputs)
        assert layer.bias is None and layer.out_features == outputs
        assert 0.999 * bound < layer.weight.abs().max().item() <= bound
        assert deviation(layer.weight) == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert model.merge.weight.abs().max() <= 1 / math.sqrt(512)  # the other layers go by their inputs
