"""The transformer against PyTorch's own, and dropout against its definition."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from models.build import seeded
from models.label_aware.label_transformer import EncoderLayer, LabelTransformer, SelfAttention, sine_positions
from models.layers.stochastic import SeededDropout, use_generator


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def twin(layer):
    """PyTorch's post-norm layer with the weights of ours."""
    dim, ff = layer.linear1.in_features, layer.linear1.out_features
    other = nn.TransformerEncoderLayer(dim, layer.attention.heads, ff, activation="relu", batch_first=True)
    with torch.no_grad():
        other.self_attn.in_proj_weight.copy_(layer.attention.in_proj.weight)
        other.self_attn.in_proj_bias.copy_(layer.attention.in_proj.bias)
        other.self_attn.out_proj.load_state_dict(layer.attention.out_proj.state_dict())
        for name in ("linear1", "linear2", "norm1", "norm2"):
            other.get_submodule(name).load_state_dict(layer.get_submodule(name).state_dict())
    return other.eval()


@pytest.mark.parametrize(("dim", "heads", "ff"), [(16, 4, 16), (24, 3, 40)])
def test_layer_equals_pytorchs_with_the_same_weights(dim, heads, ff):
    with seeded(0):
        layer = EncoderLayer(dim, heads, ff, dropout=0.1).eval()
    for norm in (layer.norm1, layer.norm2):  # away from 1 and 0, so that a mix-up of the two would show
        nn.init.uniform_(norm.weight, 0.5, 1.5, generator=generator(1))
        nn.init.uniform_(norm.bias, -0.5, 0.5, generator=generator(2))
    x = torch.randn(2, 7, dim, generator=generator(3))
    assert torch.allclose(layer(x), twin(layer)(x), atol=1e-5)


def test_transformer_is_a_norm_and_its_layers():
    with seeded(0):
        transformer = LabelTransformer(16, 2, 4, 16, 0.1).eval()
    x = torch.randn(2, 5, 16, generator=generator(1)) * 7
    expected = nn.functional.layer_norm(x, (16,))
    for layer in transformer.layers:
        expected = twin(layer)(expected)
    assert torch.allclose(transformer(x), expected, atol=1e-5)


def test_sizes_at_the_papers_width():
    assert sum(p.numel() for p in EncoderLayer(512, 4, 512, 0.1).parameters()) == 1_577_984
    assert sum(p.numel() for p in SelfAttention(512, 4).parameters()) == 4 * 512 * 512 + 4 * 512


def test_dropout_drops_its_share_and_keeps_the_mean():
    layer = SeededDropout(0.25).train()
    use_generator(layer, generator())
    out = layer(torch.ones(100_000))
    assert out.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.006)
    assert out.mean().item() == pytest.approx(1.0, abs=0.008)


def test_dropout_repeats_with_its_generator_and_leaves_the_global_one_alone():
    transformer = LabelTransformer(16, 2, 4, 16, 0.5).train()
    x = torch.randn(2, 5, 16, generator=generator(1))
    before = torch.get_rng_state()
    use_generator(transformer, generator(9))
    first, second = transformer(x), transformer(x)
    use_generator(transformer, generator(9))
    assert torch.equal(transformer(x), first)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_reaches_the_attention_weights():
    with seeded(0):
        attention = SelfAttention(8, 2, dropout=0.9).train()
    use_generator(attention, generator(1))
    x = torch.randn(1, 3, 8, generator=generator(2))
    assert not torch.allclose(attention(x), attention(x))


def test_training_without_a_generator_is_refused_and_eval_needs_none():
    layer, x = SeededDropout(0.5), torch.ones(4)
    with pytest.raises(AssertionError, match="use_generator"):
        layer.train()(x)
    assert torch.equal(layer.eval()(x), x)
    assert torch.equal(SeededDropout(0.0).train()(x), x)


def test_a_copy_starts_without_the_generator():
    layer = SeededDropout(0.5)
    use_generator(layer, generator())
    assert copy.deepcopy(layer).generator is None and layer.generator is not None


def test_positions_of_a_row_of_two_cells_by_hand():
    # d = 4: one frequency, 1. The row's y is 1 of 1, 2 pi: sin 0, cos 1; the columns' x are pi and 2 pi.
    expected = torch.tensor([[0.0, 1.0, 0.0, -1.0], [0.0, 1.0, 0.0, 1.0]])
    assert torch.allclose(sine_positions(1, 2, 4), expected, atol=1e-6)


def test_positions_match_detrs_loop_over_entries():
    height, width, dim = 3, 5, 16
    found = sine_positions(height, width, dim)
    assert found.shape == (15, 16)
    for y, x in itertools.product(range(height), range(width)):
        for start, share in ((0, (y + 1) / height), (dim // 2, (x + 1) / width)):
            for entry in range(dim // 2):
                angle = 2 * math.pi * share / 10000 ** (2 * (entry // 2) / (dim // 2))
                wave = math.sin if entry % 2 == 0 else math.cos
                assert found[y * width + x, start + entry].item() == pytest.approx(wave(angle), abs=1e-6)
    assert len({tuple(row) for row in found.tolist()}) == 15  # no two cells are alike
