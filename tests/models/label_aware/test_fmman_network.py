"""The networks with label states: shapes, sizes, dependencies, finite numbers."""

import pytest
import torch
from torch.nn.functional import normalize

from models.build import new_model
from models.label_aware.label_transformer import sine_positions
from models.layers.stochastic import use_generator
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def network(classes=5, width=0.125, seed=0, name="fmman", **fmman):
    settings = ModelSettings(name=name, backbone={"width": width}, fmman=fmman)
    table = normalize(torch.randn(classes, settings.backbone.dim, generator=generator(7)))
    words = normalize(torch.randn(2, settings.backbone.dim, generator=generator(8)))
    model = new_model(settings, ModelSpec(tuple(f"label {i}" for i in range(classes)), 64, table, words), seed)
    use_generator(model, generator(seed + 1))
    return model


def images(batch=2, size=64, seed=3):
    return torch.rand(batch, 3, size, size, generator=generator(seed))


@pytest.mark.parametrize("classes", [2, 16, 17, 20])
@pytest.mark.parametrize(("size", "positions"), [(64, 4), (224, 49), (256, 64)])
def test_shapes(classes, size, positions):
    model, states = network(classes), torch.zeros(2, classes, dtype=torch.int64)
    tokens = model.encode_image(images(size=size))
    assert tokens.shape == (2, positions, 64)
    out = model.head(tokens, states)
    assert out.logits.shape == (2, classes) and out.z.shape == (2, 64)
    for part in (out.masked_labels, out.features, out.reconstruction, out.mean, out.deviation):
        assert part.shape == (2, classes, 64)
    assert out.strength.shape == out.adjacency.shape == (2, classes, classes)
    assert model.eval()(images(size=size)).shape == (2, classes)


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("fmman", {}, 18_808_915),
        ("fmman", {"use_graph": False}, 15_920_209),
        ("fedlgt", {}, 15_920_209),
        ("ctran", {}, 15_920_209 + 17 * 512 + 2 * 512),  # and the learnt embeddings of labels and known states
    ],
)
def test_parameters_at_the_papers_size(name, options, parameters):
    model = network(17, width=1.0, name=name, **options)
    assert sum(p.numel() for p in model.parameters()) == parameters
    prefix = NETWORKS[name].cluster_prefix
    assert sum(p.numel() for n, p in model.named_parameters() if n.startswith(prefix)) == 1_577_984


@pytest.mark.parametrize("mode", ["mul_scalar", "mul_embed", "add_embed"])
@pytest.mark.parametrize("known", [0, 1])
def test_all_labels_known_gives_finite_values_and_gradients(mode, known):
    model = network(state_combine=mode).train()
    out = model.head(model.encode_image(images()), torch.full((2, 5), known))
    loss = out.logits.square().sum() + (out.masked_labels - out.reconstruction).square().sum()
    (loss + (out.features @ out.features.transpose(1, 2) - out.strength).square().sum()).backward()
    assert all(torch.isfinite(part).all() for part in out)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name


def test_in_eval_the_graph_is_independent_of_the_image_and_deterministic():
    model = network().eval()
    with torch.no_grad():
        tokens = model.encode_image(images(3))
        first, second = model.head(tokens, model.unknown(1)), model.head(tokens, model.unknown(1))
        other = model.head(model.encode_image(images(1, seed=8)), model.unknown(1))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for image in range(3):
        assert torch.equal(first.features[image], other.features[0])
    assert not torch.equal(first.logits[0], other.logits[0])


def test_one_row_of_states_equals_the_row_repeated_for_each_image():
    model = network().eval()
    states = torch.tensor([[1, -1, 0, -1, 1]])
    with torch.no_grad():
        tokens = model.encode_image(images(3))
        shared, plain = model.head(tokens, states), model.head(tokens, states.expand(3, -1))
    for a, b in zip(shared, plain, strict=True):
        assert a.shape == b.shape
        assert torch.allclose(a, b, atol=1e-5)


def test_in_training_one_row_of_states_is_refused_since_noise_is_drawn_per_image():
    model = network().train()
    use_generator(model, generator(4))
    with pytest.raises(AssertionError, match="states"):
        model.head(model.encode_image(images(2)), model.unknown(1))


def test_forward_is_the_head_with_every_label_unknown():
    model = network().eval()
    with torch.no_grad():
        expected = model.head(model.encode_image(images()), torch.full((2, 5), -1)).logits
        assert torch.allclose(model(images()), expected, atol=1e-6)


def test_training_noise_depends_on_the_generator():
    model = network(dropout=0.0).train()
    tokens = model.encode_image(images()).detach()
    use_generator(model, generator(4))
    first, second = (model.head(tokens, model.unknown(2)).features for _ in range(2))
    use_generator(model, generator(4))
    assert torch.equal(model.head(tokens, model.unknown(2)).features, first)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])  # drawn per sample, though the states are equal


def test_each_label_is_read_by_its_own_row():
    model = network().eval()
    hidden = torch.randn(2, 5, 64, generator=generator(2))
    weight, bias = model.readout.weight, model.readout.bias
    logits = model.readout(hidden)
    for b in range(2):
        for c in range(5):
            assert logits[b, c].item() == pytest.approx((weight[c] @ hidden[b, c] + bias[c]).item(), abs=1e-5)


@pytest.mark.parametrize(("choice", "width"), [("image", 64), ("all", 64), ("labels", 64), ("concat", 128)])
def test_z_averages_the_chosen_positions(choice, width):
    model = network(z=choice).eval()
    with torch.no_grad():
        tokens = model.encode_image(images())
        out = model.head(tokens, model.unknown(2))
        hidden = model.transformer(torch.cat([tokens, out.features], dim=1))  # 4 image positions, 5 labels
    image, labels = hidden[:, :4].sum(1), hidden[:, 4:].sum(1)
    expected = {
        "image": image / 4,
        "labels": labels / 5,
        "all": (image + labels) / 9,
        "concat": torch.cat([image / 4, labels / 5], -1),
    }[choice]
    assert out.z.shape == (2, width)
    assert torch.allclose(out.z, expected, atol=1e-5)


def test_without_the_graph_the_transformer_reads_the_masked_labels():
    model = network(use_graph=False).eval()
    states = torch.tensor([[1, 0, -1, -1, 1]] * 2)
    with torch.no_grad():
        tokens = model.encode_image(images())
        out = model.head(tokens, states)
        hidden = model.transformer(torch.cat([tokens, states.unsqueeze(-1) * model.label_embeddings], dim=1))
    assert out[3:] == (None,) * 6
    assert torch.allclose(out.logits, model.readout(hidden[:, 4:]), atol=1e-5)


@pytest.mark.parametrize(
    "option", [{"edge_act": "shift"}, {"adj_norm": "row"}, {"gae_residual": True}, {"gae_scale": 9.0}]
)
def test_every_graph_option_changes_the_features(option):
    states = torch.tensor([[1, -1, -1, 0, 1]])
    with torch.no_grad():
        tokens = network().eval().encode_image(images(1))
        plain = network().eval().head(tokens, states).features
        changed = network(**option).eval().head(tokens, states).features
    assert (plain - changed).abs().max() > 1e-5


@pytest.mark.parametrize("name", ["fmman", "fedlgt", "ctran"])
def test_positions_are_added_to_the_image_tokens_and_make_their_order_matter(name):
    plain, placed = network(name=name).eval(), network(name=name, positions="sine").eval()
    assert plain.state_dict().keys() == placed.state_dict().keys()
    x = images(1)
    with torch.no_grad():
        assert torch.allclose(placed.encode_image(x) - plain.encode_image(x), sine_positions(2, 2, 64), atol=1e-5)
        assert not torch.allclose(plain(x), placed(x))


def test_the_factor_on_the_noise_scales_it_and_moves_no_other_number():
    states = torch.tensor([[1, -1, -1, 0, 1]] * 2)

    def features(factor):
        model = network(noise_scale=factor, dropout=0.5).train()
        with torch.no_grad():
            out = model.head(model.encode_image(images()), states)
        return out.features, out.mean, model.graph.source(out.mean).get_state()

    (full, mean, after), (half, _, after_half), (none, _, after_none) = (features(f) for f in (1.0, 0.5, 0.0))
    assert torch.equal(none, mean) and not torch.equal(full, mean)
    assert torch.allclose(half - mean, (full - mean) / 2, atol=1e-6)
    assert torch.equal(after, after_half) and torch.equal(after, after_none)


def test_the_state_dict_has_integer_counters_and_no_frozen_tensors():
    model = network().train()
    model.encode_image(images())
    state = model.state_dict()
    counters = {name: tensor for name, tensor in state.items() if name.endswith("num_batches_tracked")}
    assert len(counters) == 20
    assert all(tensor.dtype == torch.int64 and tensor.item() == 1 for tensor in counters.values())
    floats = {name for name, tensor in state.items() if tensor.is_floating_point()}
    assert floats | counters.keys() == state.keys()
    assert not any(name.endswith(("label_embeddings", ".mean", ".std")) for name in state)
    assert not model.label_embeddings.requires_grad


def test_the_embedding_is_z_with_every_label_unknown():
    model = network().eval()
    with torch.no_grad():
        out = model.head(model.encode_image(images()), model.unknown(2))
        assert torch.allclose(model.embed(images()), out.z, atol=1e-6)
    assert model.train().embed(images()).requires_grad


def test_without_states_the_label_embeddings_are_unchanged():
    model = network(use_state=False).eval()
    with torch.no_grad():
        tokens = model.encode_image(images())
        known, unknown = (model.head(tokens, torch.full((2, 5), state)) for state in (1, -1))
    assert torch.equal(known.masked_labels[1], model.label_embeddings)
    assert all(torch.equal(a, b) for a, b in zip(known, unknown, strict=True))
    assert network(use_state=False, state_combine="mul_embed").state_table is None


@pytest.mark.parametrize("name", ["fedlgt", "ctran"])
def test_fedlgt_and_ctran_add_states_to_labels_without_a_graph(name):
    model = network(name=name, use_graph=True).eval()
    states = torch.tensor([[1, 0, -1, -1, 1]] * 2)
    with torch.no_grad():
        table = model.state_table()
        out = model.head(model.encode_image(images()), states)
        assert torch.equal(out.masked_labels[0], model.label_embeddings + table[states[0] + 1])
    assert out.features is None and not table[0].any() and table[1:].norm(dim=1).min() > 0.1


def test_only_ctrans_tables_are_trained_and_sent():
    trained = {name: {key.split(".")[0] for key in network(name=name).state_dict()} for name in ("fedlgt", "ctran")}
    assert trained["ctran"] - trained["fedlgt"] == {"labels", "state_table"}
    model = network(name="ctran").train()
    model.head(model.encode_image(images()), torch.tensor([[1, 0, -1, -1, 1]] * 2)).logits.sum().backward()
    assert model.labels.rows.grad.abs().min() > 0 and model.state_table.rows.grad.abs().max() > 0
    assert model.state_table.rows.shape == (2, 64)  # unknown has no row that could move away from zero


def test_frozen_added_states_give_fedlgts_network():
    ours = network(use_graph=False, state_combine="add_embed", state_embeddings="frozen").eval()
    theirs = network(name="fedlgt").eval()
    assert {n: tuple(v.shape) for n, v in ours.state_dict().items()} == {
        n: tuple(v.shape) for n, v in theirs.state_dict().items()
    }
    with torch.no_grad():
        tokens, states = ours.encode_image(images()), torch.tensor([[1, 0, -1, -1, 1]] * 2)
        assert torch.equal(ours.head(tokens, states).logits, theirs.head(tokens, states).logits)


def test_the_given_embeddings_are_copied():
    settings = ModelSettings(backbone={"width": 0.125})
    table = normalize(torch.ones(2, 64))
    model = new_model(settings, ModelSpec(("a", "b"), 64, table), 0)
    table.zero_()
    assert model.label_embeddings.abs().sum() > 0
