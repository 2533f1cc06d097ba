"""Attention between clients: every reading by hand or restated, its limits and its invariances."""

import math

import pytest
import torch

from tasks.server.personal.attention import (
    CENTRED,
    TEMPERATURES,
    attention,
    cosines,
    distances,
    gram_matrix,
    softmax_weights,
    sparse_rows,
    with_self_weight,
)

READINGS = [*TEMPERATURES, "inverse_distance", "distance_literal"]
EVERY = pytest.mark.parametrize("reading", READINGS)


def rows(count=5, entries=40, seed=0):
    return torch.randn(count, entries, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights_of(values, reading, temperature=None, self_weight=None, **coefficients):
    """The attention of layers [N, P], or of changes [N, P] for update_cosine."""
    gram = gram_matrix([values.clone()], len(values), centred=reading in CENTRED)
    temperature = temperature or TEMPERATURES.get(reading, 1.0)
    return attention(gram, reading, temperature, values.shape[1], self_weight, **coefficients)


def restated(values, reading):
    """The same from whole rows, pair by pair, as section 1.4 of the specification words it."""
    count, entries = values.shape
    t = TEMPERATURES.get(reading, 1.0)
    d = torch.stack([torch.stack([(a - b).norm() for b in values]) for a in values])
    if reading in ("centered_cosine", "update_cosine", "cosine"):
        shown = values - values.mean(0) if reading == "centered_cosine" else values
        scores = torch.nn.functional.cosine_similarity(shown[:, None], shown[None], dim=2) / t
    elif reading == "rbf":
        scores = -d / (t * d.sum() / (count * (count - 1)))
    elif reading in ("dot_literal", "scaled_dot"):
        scores = values @ values.T / (math.sqrt(entries) if reading == "scaled_dot" else 1)
    elif reading == "inverse_distance":
        near = (1 / d).masked_fill(torch.eye(count, dtype=torch.bool), 0)
        return near / near.sum(1, keepdim=True) * (1 - 1 / count) + torch.eye(count) / count
    else:
        return d / d.sum(1, keepdim=True)
    raised = scores.exp()
    return raised / raised.sum(1, keepdim=True)


@EVERY
def test_every_reading_is_what_its_formula_says(reading):
    values = rows() * 0.3
    found = weights_of(values, reading)
    assert torch.allclose(found, restated(values, reading), atol=1e-7)
    assert torch.allclose(found.sum(1), torch.ones(5, dtype=torch.float64), atol=1e-12)


def test_centred_cosines_by_hand():
    # The mean of (0,0), (2,0), (1,3) is (1,1); centred (-1,-1), (1,-1), (0,2): cosines 0, -1/sqrt 2, -1/sqrt 2.
    values = torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    one, none, away = math.exp(2), 1.0, math.exp(-math.sqrt(2))
    found = weights_of(values, "centered_cosine", 0.5)
    first, last = one + none + away, one + 2 * away
    expected = [[one / first, none / first, away / first], [none / first, one / first, away / first]]
    assert found[:2].tolist() == [pytest.approx(row) for row in expected]
    assert found[2].tolist() == pytest.approx([away / last, away / last, one / last])


def test_distances_as_printed_by_hand():
    # Clients at 0, 1 and 3 of a line: the farthest weighs most and nobody weighs himself.
    values = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    expected = [[0, 1 / 4, 3 / 4], [1 / 3, 0, 2 / 3], [3 / 5, 2 / 5, 0]]
    assert weights_of(values, "distance_literal").tolist() == [pytest.approx(row) for row in expected]
    inverse = weights_of(values, "inverse_distance", self_weight=0.4)
    assert inverse[0].tolist() == pytest.approx([0.4, 0.6 * 3 / 4, 0.6 * 1 / 4])
    assert inverse[1].tolist() == pytest.approx([0.6 * 2 / 3, 0.4, 0.6 * 1 / 3])


@EVERY
def test_the_order_of_clients_changes_nothing(reading):
    values, order = rows(), torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(weights_of(values[order], reading), weights_of(values, reading)[order][:, order], atol=1e-9)


@EVERY
def test_equal_uploads_keep_their_values(reading):
    values = rows(1).expand(4, -1)
    assert torch.allclose(weights_of(values, reading) @ values, values, atol=1e-12)


@pytest.mark.parametrize("reading", ["centered_cosine", "rbf", "distance_literal", "inverse_distance"])
def test_equal_uploads_are_no_noise(reading):
    """Their differences to the mean are zero and no rounding errors, whose cosines would be arbitrary."""
    values = (rows(1) / 3).expand(7, -1)
    plain = reading == "distance_literal"
    expected = torch.full((7, 7), 1 / 7) if plain else torch.eye(7)
    assert torch.equal(weights_of(values, reading), expected.double()) or plain
    assert torch.allclose(weights_of(values, reading), expected.double())


@EVERY
def test_one_client_is_itself(reading):
    assert weights_of(rows(1), reading).tolist() == [[1.0]]


@pytest.mark.parametrize("reading", TEMPERATURES)
def test_the_limits_of_the_temperature(reading):
    values = rows()
    assert torch.allclose(weights_of(values, reading, 1e9), torch.full((5, 5), 0.2, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(weights_of(values, reading, 1e-6), torch.eye(5, dtype=torch.float64), atol=1e-6)


def test_changes_are_compared_by_direction_only():
    values, factors = rows(), torch.tensor([[1.0], [7.0], [0.01], [2.0], [100.0]], dtype=torch.float64)
    assert torch.allclose(weights_of(values * factors, "update_cosine"), weights_of(values, "update_cosine"))


def test_a_client_that_did_not_train_is_given_the_mean_of_those_that_did():
    values = rows()
    values[2] = 0
    found = weights_of(values, "update_cosine")
    assert found[2].tolist() == pytest.approx([0.25, 0.25, 0, 0.25, 0.25])
    assert weights_of(values, "update_cosine", self_weight=0.4)[2].tolist() == pytest.approx(
        [0.15, 0.15, 0.4, 0.15, 0.15]
    )
    assert weights_of(values, "update_cosine", self_weight=1.0)[2].tolist() == [0, 0, 1, 0, 0]


@EVERY
def test_a_fixed_self_weight(reading):
    values = rows()
    free, fixed = weights_of(values, reading), weights_of(values, reading, self_weight=0.3)
    assert torch.allclose(fixed.diagonal(), torch.full((5,), 0.3, dtype=torch.float64))
    off = ~torch.eye(5, dtype=torch.bool)
    ratio = (fixed / free)[off].reshape(5, 4)  # the others keep their proportions
    assert torch.allclose(ratio, ratio[:, :1].expand(-1, 4), rtol=1e-6)
    assert torch.equal(weights_of(values, reading, self_weight=1.0), torch.eye(5, dtype=torch.float64))


def test_others_without_any_weight_share_alike():
    assert with_self_weight(torch.eye(3, dtype=torch.float64), 0.5).tolist() == [
        [0.5, 0.25, 0.25],
        [0.25, 0.5, 0.25],
        [0.25, 0.25, 0.5],
    ]


def test_distances_of_models_that_share_their_start_are_exact():
    """float32 models that differ in the fourth digit: a Gram matrix of the rows as they are would lose that."""
    draws = torch.Generator().manual_seed(1)
    start = 100 * torch.randn(1, 10_000, generator=draws)
    values = (start * (1 + 1e-4 * torch.randn(6, 10_000, generator=draws))).double()
    direct = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
    found = distances(gram_matrix([values.clone()], 6, centred=True))
    assert torch.allclose(found, direct, rtol=1e-5)


def test_ranges_add_up():
    values = rows(4, 100)
    whole = gram_matrix([values.clone()], 4, centred=True)
    parts = gram_matrix([values[:, :33].clone(), values[:, 33:].clone()], 4, centred=True)
    assert torch.allclose(whole, parts) and not torch.allclose(whole, values @ values.T)


def test_coefficients_multiply_the_rows():
    values, query, key = rows() * 0.2, torch.arange(1.0, 6), torch.tensor([2.0, 1, 1, 1, 0.5])
    found = weights_of(values, "dot_literal", query=query.double(), key=key.double())
    scores = (query[:, None] * values) @ (key[:, None] * values).T
    assert torch.allclose(found, scores.softmax(1))


def test_zero_rows_have_no_cosine():
    similar, alive = cosines(torch.tensor([[4.0, 0, 2], [0, 0, 0], [2, 0, 1]], dtype=torch.float64))
    assert alive.tolist() == [True, False, True]
    assert similar.tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]


def test_the_largest_weights_are_kept_and_rescaled():
    weights = torch.tensor([[0.5, 0.1, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25], [0.0, 0.9, 0.0, 0.1], [0.1, 0.2, 0.3, 0.4]])
    kept = sparse_rows(weights.double(), 2)
    assert [list(row.positions) for row in kept] == [[0, 2], [0, 1], [1, 3], [2, 3]]  # of equal weights the first
    assert list(kept[0]) == pytest.approx([0.625, 0, 0.375, 0]) and list(kept[3]) == pytest.approx([0, 0, 3 / 7, 4 / 7])
    values = rows() * 0.3
    scores = restated(values, "dot_literal").log()
    cut = scores.masked_fill(scores < scores.sort(1, descending=True).values[:, 2:3], -torch.inf)
    for row, expected in zip(
        sparse_rows(scores.exp(), 3), cut.softmax(1), strict=True
    ):  # a softmax over the kept scores
        assert list(row) == pytest.approx(expected.tolist())


def test_a_fixed_self_weight_is_among_the_kept():
    weights = softmax_weights(torch.tensor([[-9.0, 1, 2, 3]] * 4, dtype=torch.float64), 0.2)
    first, *_, last = sparse_rows(weights, 2, 0.2)
    assert list(first) == pytest.approx([0.2, 0, 0, 0.8]) and list(last) == pytest.approx([0, 0, 0.8, 0.2])
    assert list(sparse_rows(torch.eye(3, dtype=torch.float64), 2, 0.5)[0]) == pytest.approx([0.5, 0.5, 0])
