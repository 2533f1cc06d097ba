"""XueSGCN's network: counts, graphs and attention by hand; when labels are counted; what its state holds."""

import math

import pytest
import torch
from torch.nn.functional import leaky_relu, normalize

from models.build import new_model
from models.label_aware.xuesgcn import (
    bilinear_attention,
    co_occurrence_counts,
    label_probabilities,
    normalized_adjacency,
)
from models.registry import ModelSpec
from models.settings.model import ModelSettings

CLASSES = 5
NARROW = {"scenes": 3, "attention_width": 12, "graph_width": 10}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def network(seed=0, width=0.125, classes=CLASSES, image_size=64, **options):
    settings = ModelSettings(name="xuesgcn", backbone={"width": width}, xuesgcn=NARROW | options)
    table = normalize(torch.randn(classes, settings.backbone.dim, generator=generator(7)))
    return new_model(settings, ModelSpec(tuple("abcdefghijklmnopq"[:classes]), image_size, table), seed)


def images(batch=4, size=64, seed=3):
    return torch.rand(batch, 3, size, size, generator=generator(seed))


def labels(batch=4, seed=5):
    return (torch.rand(batch, CLASSES, generator=generator(seed)) < 0.5).to(torch.uint8)


def test_co_occurrence_counts_by_hand():
    targets = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=torch.uint8)
    counts = co_occurrence_counts(targets, torch.tensor([1, 0, 1]), 3)
    assert counts[1].tolist() == [[2, 2, 0], [2, 2, 0], [0, 0, 0]]
    assert counts[0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 1, 1]]
    assert counts[2].count_nonzero() == 0 and counts.dtype == torch.float32


def test_normalized_adjacency_by_hand():
    # label 0 was seen 4 times, once with label 1; label 1 twice; label 2 never
    counts = torch.tensor([[4.0, 1, 0], [1, 2, 0], [0, 0, 0]])
    p = label_probabilities(counts)
    assert torch.allclose(p, torch.tensor([[1, 0.25, 0], [0.5, 1, 0], [0, 0, 1]]))
    # row sums 1.25, 1.5, 1; entry [i, j] = P[j, i] / sqrt(r_i r_j)
    root = math.sqrt(1.25 * 1.5)
    by_hand = torch.tensor([[1 / 1.25, 0.5 / root, 0], [0.25 / root, 1 / 1.5, 0], [0, 0, 1]])
    assert torch.allclose(normalized_adjacency(p), by_hand)


def test_a_scene_without_images_has_the_identity_as_graph():
    graphs = normalized_adjacency(label_probabilities(torch.zeros(2, 4, 4)))
    assert torch.equal(graphs, torch.eye(4).expand(2, 4, 4))


def test_attention_by_hand():
    # one label whose scores of the two tokens differ by ln 3: weights 3/4 and 1/4
    tokens = torch.tensor([[[4.0, 0.0], [0.0, 8.0]]])
    inner = torch.tensor([[[math.atanh(0.5)], [0.0]]])
    out = bilinear_attention(tokens, inner, torch.ones(1, 1), torch.tensor([2 * math.log(3)]))
    assert torch.allclose(out, torch.tensor([[[3.0, 2.0]]]))


def test_attention_equals_the_published_form():
    model = network()
    part = model.attention
    tokens, table = torch.randn(2, 6, 64, generator=generator()), model.label_embeddings
    pairs = torch.tanh(part.image_proj(tokens)[:, None] * part.label_proj(table)[None, :, None])  # [B, C, S, n]
    weights = part.target(part.hidden(pairs) + 0.7).squeeze(-1).softmax(-1)  # a bias would change nothing
    expected = torch.stack([torch.einsum("cs,sd->cd", w, t) for w, t in zip(weights, tokens, strict=True)])
    assert torch.allclose(part(tokens, table), expected, atol=1e-5)


def test_the_output_against_a_loop_over_images():
    model = network().eval()
    model.co_occurrence += co_occurrence_counts(labels(40), torch.arange(40) % 3, 3)
    x = images()
    with torch.no_grad():
        tokens = model.encode_image(x)
        for image, logits in zip(tokens, model(x), strict=True):
            scene = int((image.mean(0) @ model.scene_head.weight.T).softmax(-1).argmax())
            graph = normalized_adjacency(label_probabilities(model.co_occurrence[scene]))
            found = model.attention(image[None], model.label_embeddings)[0]
            hidden = leaky_relu(graph @ (found @ model.graph1.weight.T), 0.2)
            refined = graph @ (hidden @ model.graph2.weight.T)
            merged = torch.tanh(torch.cat([found, refined], -1) @ model.merge.weight.T + model.merge.bias)
            expected = torch.stack(
                [merged[c] @ model.readout.weight[c] + model.readout.bias[c] for c in range(CLASSES)]
            )
            assert torch.allclose(logits, expected, atol=1e-5)
        assert torch.allclose(model.embed(x), tokens.mean(1))


def test_training_labels_are_counted_in_their_images_scene():
    model = network().train()
    y = labels()
    out = model.scene_forward(images(), y)
    hard = out.scenes.argmax(-1)
    for scene in range(3):
        here = y[hard == scene].float()
        assert torch.equal(model.co_occurrence[scene], here.T @ here)
        assert model.scene_counts[scene] == len(here)
    before = model.co_occurrence.clone()
    model.scene_forward(images(), y)  # the images may have other scenes now, but all are counted again
    assert model.scene_counts.sum() == 8 and model.co_occurrence.sum() == 2 * before.sum()
    assert model.scene_counts.dtype == torch.int64


def test_nothing_is_counted_in_eval_mode_and_test_labels_change_nothing():
    model = network().eval()
    x, y = images(), labels()
    with torch.no_grad():
        first, second = model.scene_forward(x, y), model.scene_forward(x, 1 - y)
        plain = model(x)
    assert model.co_occurrence.count_nonzero() == 0 and model.scene_counts.count_nonzero() == 0
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)) and torch.equal(plain, first.logits)


def test_forward_without_targets_counts_nothing_in_training_either():
    model = network().train()
    model(images())
    model.embed(images())
    assert model.co_occurrence.count_nonzero() == 0 and model.scene_counts.count_nonzero() == 0


def test_the_output_depends_on_the_scenes_graph():
    model = network().eval()
    x = images()
    with torch.no_grad():
        before = model(x)
        model.co_occurrence += co_occurrence_counts(labels(40), torch.arange(40) % 3, 3)
        assert not torch.allclose(before, model(x))


def test_the_state_contains_the_counts_and_not_the_label_embeddings():
    model = network().train()
    model.scene_forward(images(), labels())
    state = model.state_dict()
    assert {"co_occurrence", "scene_counts", "scene_head.weight"} <= state.keys() and "label_embeddings" not in state
    assert state["co_occurrence"].count_nonzero() > 0
    other = network(seed=9)
    other.load_state_dict(state, strict=True)
    with torch.no_grad():
        assert torch.equal(other.eval()(images()), model.eval()(images()))


def test_the_declared_kinds_cover_exactly_the_scenes():
    made = network()
    declared = [name for name in made.state_dict() if name.endswith(tuple(made.STATE_KINDS))]
    assert sorted(declared) == ["co_occurrence", "scene_counts", "scene_head.weight"]


def test_a_new_model_has_zero_counts_and_is_reproducible():
    first, second = network(seed=4), network(seed=4)
    assert first.co_occurrence.count_nonzero() == 0 and first.scene_counts.count_nonzero() == 0
    same = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


def test_number_of_parameters_at_full_size():
    model = network(width=1.0, classes=17, scenes=6, attention_width=1024, graph_width=1024)
    backbone = sum(p.numel() for p in model.backbone.parameters())
    attention = 2 * 512 * 1024 + 1024 * 1024 + 1024
    rest = 6 * 512 + 2 * 512 * 1024 + (1024 * 512 + 512) + 17 * 513
    assert backbone == 11_176_512 and sum(p.numel() for p in model.parameters()) == backbone + attention + rest
    assert model.co_occurrence.shape == (6, 17, 17)


@pytest.mark.parametrize("scenes", [1, 6])
def test_gradients_are_finite_from_the_first_batch_on_and_a_single_image_works(scenes):
    model = network(scenes=scenes).train()
    out = model.scene_forward(images(), labels())
    (out.logits.square().sum() + out.scenes.square().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    assert model.eval()(images(1, 32)).shape == (1, CLASSES)
