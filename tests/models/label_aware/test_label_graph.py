"""Equations 3-8 against restatements written as loops over labels, and by hand on two or three labels."""

import math

import pytest
import torch

from models.build import seeded
from models.label_aware.label_graph import (
    FrozenRows,
    GaussianGraphAutoencoder,
    LearnedRows,
    StateTable,
    adjacency,
    combine_states,
    cosine_similarity_matrix,
    edge_weights,
    frozen_states,
)
from models.layers.stochastic import use_generator


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_labels(count=4, dim=8, seed=0):
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=generator(seed)))


def test_scalar_states_negate_erase_or_keep_a_label():
    labels = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    masked = combine_states(labels, torch.tensor([[-1, 0, 1]]), "mul_scalar")
    assert masked.tolist() == [[[-1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]


@pytest.mark.parametrize("mode", ["mul_embed", "add_embed"])
def test_embedded_states_take_the_row_of_each_state(mode):
    labels, states = random_labels(3, 5), torch.tensor([[-1, 0, 1], [1, 1, 0]])
    table = torch.randn(3, 5, generator=generator(1))
    masked = combine_states(labels, states, mode, table)
    for b in range(2):
        for c in range(3):
            row = {-1: table[0], 0: table[1], 1: table[2]}[int(states[b, c])]
            expected = labels[c] * row if mode == "mul_embed" else labels[c] + row
            assert torch.equal(masked[b, c], expected)


def test_state_tables_start_as_scalars_or_with_zero_for_unknown():
    labels, states = random_labels(), torch.tensor([[-1, 0, 1, 1]])
    scalar = combine_states(labels, states, "mul_scalar")
    assert torch.equal(combine_states(labels, states, "mul_embed", StateTable(8, "mul_embed")()), scalar)
    added = StateTable(8, "add_embed")
    assert added().shape == (3, 8) and not added()[0].any() and added()[1:].abs().max() > 0
    added().sum().backward()
    assert added.rows.shape == (2, 8)  # unknown has no weights that training could move away from zero


def test_frozen_state_embeddings_are_added_and_unknown_adds_nothing():
    labels, words = random_labels(3, 5), torch.tensor([[1.0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0]])  # absent, present
    table = frozen_states(words)
    masked = combine_states(labels, torch.tensor([[-1, 0, 1]]), "add_embed", table())[0]
    assert torch.equal(masked, labels + torch.stack([torch.zeros(5), words[0], words[1]]))
    assert not list(table.parameters()) and not table.state_dict()


def test_frozen_rows_are_a_copy_and_learned_rows_are_initialised_by_their_width():
    rows = random_labels(3, 5)
    frozen, kept = FrozenRows(rows), rows.clone()
    rows.zero_()
    assert torch.equal(frozen(), kept) and not frozen().requires_grad
    with seeded(3):
        learnt = LearnedRows(400, 16)
    assert learnt().requires_grad and list(learnt.state_dict()) == ["rows"]
    assert 0.24 < learnt().abs().max() <= 0.25  # 1 / sqrt(16)


def test_cosine_similarity_is_zero_for_zero_rows():
    # (3, 4) and (4, 3): 24 / 25; (3, 4) and (-4, 3): 0; anything with the zero row: 0
    vectors = torch.tensor([[3.0, 4.0], [4.0, 3.0], [-4.0, 3.0], [0.0, 0.0]])
    expected = torch.tensor([[1, 0.96, 0, 0], [0.96, 1, -0.28, 0], [0, -0.28, 1, 0], [0, 0, 0, 0]])
    assert torch.allclose(cosine_similarity_matrix(vectors), expected, atol=1e-6)


def test_cosine_similarity_of_zero_rows_has_finite_gradients():
    vectors = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    cosine_similarity_matrix(vectors).square().sum().backward()
    assert torch.isfinite(vectors.grad).all() and not vectors.grad[1].any()


def test_all_unknown_has_the_graph_of_the_labels():
    labels = random_labels(5)
    masked = combine_states(labels, torch.full((1, 5), -1), "mul_scalar")
    assert torch.allclose(cosine_similarity_matrix(masked)[0], cosine_similarity_matrix(labels), atol=1e-6)


@pytest.mark.parametrize(
    ("act", "rule"),
    [
        ("abs", abs),
        ("clamp", lambda cosine: max(cosine, 0.0)),
        ("shift", lambda cosine: (cosine + 1) / 2),
        ("raw", lambda cosine: cosine),
    ],
)
@pytest.mark.parametrize("norm", ["sym", "row", "softmax", "none"])
def test_edge_weights_and_adjacency_match_loops(act, rule, norm):
    vectors = torch.randn(2, 4, 6, generator=generator(3))
    vectors[0, 2] = 0.0
    cosines = cosine_similarity_matrix(vectors)
    strength = edge_weights(cosines, act)
    graph = adjacency(strength, norm)
    for b in range(2):
        er = [[1.0 if i == j else rule(cosines[b, i, j].item()) for j in range(4)] for i in range(4)]
        for i in range(4):
            for j in range(4):
                assert strength[b, i, j].item() == pytest.approx(er[i][j], abs=1e-6)
                if norm == "softmax":
                    expected = math.exp(er[i][j]) / sum(math.exp(value) for value in er[i])
                else:
                    degree = [sum(abs(value) for value in row) for row in er]
                    divisor = {"sym": math.sqrt(degree[i] * degree[j]), "row": degree[i], "none": 1.0}[norm]
                    expected = er[i][j] / divisor
                assert graph[b, i, j].item() == pytest.approx(expected, abs=1e-6)


def test_symmetric_normalisation_by_hand():
    # Er = [[1, 0.6], [0.6, 1]]: both degrees 1.6, so A = Er / 1.6
    strength = torch.tensor([[1.0, 0.6], [0.6, 1.0]])
    assert torch.allclose(adjacency(strength, "sym"), torch.tensor([[0.625, 0.375], [0.375, 0.625]]))


def encoder(dim=8, **options):
    with seeded(5):
        return GaussianGraphAutoencoder(dim, heads=2, **options)


@pytest.mark.parametrize("residual", [False, True])
def test_encoder_matches_loops_over_labels(residual):
    module = encoder(scale=2.5, residual=residual).eval()
    with torch.no_grad():
        module.shift.fill_(-0.3)
    masked = combine_states(random_labels(), torch.tensor([[-1, 0, 1, -1]]), "mul_scalar")
    graph = adjacency(edge_weights(cosine_similarity_matrix(masked), "abs"), "sym")
    features, mean_part, _ = (part[0] for part in module.encode(masked, graph))
    x, A = masked[0], graph[0]
    with torch.no_grad():
        hidden = [sum(A[i, j] * (module.W.weight @ x[j]) for j in range(4)) for i in range(4)]
        for i in range(4):
            scores = []
            for j in range(4):
                lengths = hidden[i].norm() * hidden[j].norm()
                cosine = (hidden[i] @ hidden[j] / lengths).item() if lengths > 0 else 0.0
                value = 2.5 * cosine - 0.3
                scores.append(value if value > 0 else 0.2 * value)
            total = sum(math.exp(score) for score in scores)
            mean = sum(math.exp(scores[j]) / total * (module.V.weight @ x[j]) for j in range(4))
            assert torch.allclose(features[i], mean + x[i] if residual else mean, atol=1e-5)
            assert torch.allclose(mean_part[i], mean, atol=1e-5)


def test_training_noise_is_the_deviation_of_eq_7_times_a_standard_normal():
    module = encoder(dim=4)
    masked = combine_states(random_labels(3, 4), torch.full((20_000, 3), -1), "mul_scalar")
    graph = adjacency(edge_weights(cosine_similarity_matrix(masked), "abs"), "sym")
    with torch.no_grad():
        _, mean, reported = (part[0] for part in module.eval().encode(masked[:1], graph[:1]))
        module.train()
        use_generator(module, generator(1))
        drawn = module.encode(masked, graph)[0]
        use_generator(module, generator(1))
        assert torch.equal(module.encode(masked, graph)[0], drawn)
        module.V.weight.copy_(module.U.weight)  # then the mean of eval mode is dev_i itself
        deviation = module.eval().encode(masked[:1], graph[:1])[0][0]
    assert torch.allclose(reported, deviation)
    deviation = deviation.abs()
    assert torch.allclose(drawn.mean(0), mean, atol=0.02)
    assert torch.allclose(drawn.std(0), deviation, rtol=0.05, atol=0.005)


def test_size_at_the_papers_width():
    assert sum(p.numel() for p in GaussianGraphAutoencoder(512, 4).parameters()) == 2_888_706


def test_decoder_has_no_norm_at_its_end():
    module = encoder().eval()
    features = torch.randn(1, 4, 8, generator=generator(2))
    with torch.no_grad():
        hidden = module.decoder_norm(features + module.decoder_first(features))
        assert torch.equal(module.decode(features), module.decoder_last(hidden))
