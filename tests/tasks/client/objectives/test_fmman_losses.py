"""FMMAN's loss terms against hand-derived values and loops."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from tasks.client.objectives.contrastive import contrastive_loss
from tasks.client.objectives.label_mask.fmman_losses import (
    SquaredDistance,
    consistency_error,
    gaussian_kl,
    mean_pair_cosine,
    prototype_contrast,
    reconstruction_error,
    unknown_label_bce,
)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cosines_of(z, prototypes):
    return [[float(cosine_similarity(z[n], p[n], dim=0)) for p in prototypes] for n in range(len(z))]


def test_eq10_sums_the_unknown_labels_only():
    logits = torch.tensor([[0.0, 2.0, -1.0], [3.0, 0.0, 0.0]])
    targets = torch.tensor([[1, 0, 1], [1, 1, 0]], dtype=torch.uint8)
    states = torch.tensor([[-1, -1, 1], [1, 1, -1]])
    loss, count = unknown_label_bce(logits, targets, states)
    # ln 2 for a logit of 0; ln(1 + e^2) for logit 2 with target 0; ln 2 again
    assert loss.tolist() == pytest.approx([math.log(2) + math.log1p(math.exp(2)), math.log(2)], rel=1e-6)
    assert count.tolist() == [2, 1]


def test_the_target_of_a_known_label_does_not_count():
    logits, targets = randn(4, 5), (randn(4, 5, seed=1) > 0).long()
    states = torch.where(randn(4, 5, seed=2) > 0, targets, -1)
    known = (states != -1).nonzero()
    before, _ = unknown_label_bce(logits, targets, states)
    changed = targets.clone()
    changed[known[:, 0], known[:, 1]] = 1 - changed[known[:, 0], known[:, 1]]
    assert len(known) > 3
    assert torch.equal(unknown_label_bce(logits, changed, states)[0], before)
    assert not torch.equal(unknown_label_bce(logits, 1 - changed, states)[0], before)


def test_known_labels_get_no_gradient():
    logits = randn(2, 3).requires_grad_()
    states = torch.tensor([[-1, 0, 1], [1, -1, 0]])
    unknown_label_bce(logits, torch.ones(2, 3), states)[0].sum().backward()
    assert torch.equal(logits.grad != 0, states == -1)


def test_no_unknown_label_gives_zero_loss_and_finite_gradients():
    logits = (100 * randn(3, 4)).requires_grad_()
    loss, count = unknown_label_bce(logits, torch.ones(3, 4), torch.ones(3, 4, dtype=torch.long))
    loss.sum().backward()
    assert loss.tolist() == count.tolist() == [0.0] * 3
    assert torch.equal(logits.grad, torch.zeros(3, 4))


def test_eq8_reconstruction_by_hand():
    target = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]])
    guess = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]]])
    # squared norms 1 and 4, mean 2.5; 25 and 0, mean 12.5
    assert reconstruction_error(target, guess).tolist() == [2.5, 12.5]


def test_eq8_consistency_by_hand():
    features = torch.tensor([[[2.0, 0.0], [0.0, 5.0], [0.0, 0.0]]])
    strength = torch.tensor([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    # cosines: 1 on the first two diagonals, 0 between; a zero row has cosine 0 even with itself
    assert consistency_error(features, strength).tolist() == pytest.approx([(2 * 0.25 + 1.0) / 9])


def test_eq8_consistency_against_a_loop():
    features, strength = randn(2, 4, 6), randn(2, 4, 4, seed=1)
    for n in range(2):
        total = sum(
            (float(cosine_similarity(features[n, i], features[n, j], dim=0)) - float(strength[n, i, j])) ** 2
            for i in range(4)
            for j in range(4)
        )
        assert consistency_error(features, strength)[n].item() == pytest.approx(total / 16, rel=1e-5)


def test_eq8_consistency_of_a_zero_row_has_finite_gradients():
    features = torch.zeros(1, 3, 2, requires_grad=True)
    consistency_error(features, torch.eye(3).unsqueeze(0)).sum().backward()
    assert torch.isfinite(features.grad).all()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_prototype_contrast_is_eq11_as_printed(k):
    z, prototypes = randn(4, 6), [randn(4, 6, seed=i + 1) for i in range(k)]
    expected = [
        sum(-math.log(math.exp(c) / sum(math.exp(x) for x in row)) for c in row) for row in cosines_of(z, prototypes)
    ]
    assert prototype_contrast(z, prototypes).tolist() == pytest.approx(expected, rel=1e-5)


def test_prototype_contrast_is_zero_for_one_prototype():
    z = randn(4, 6).requires_grad_()
    value = prototype_contrast(z, [randn(4, 6, seed=1)])
    value.sum().backward()
    assert value.tolist() == [0.0] * 4
    assert torch.equal(z.grad, torch.zeros(4, 6))


@pytest.mark.parametrize("k", [2, 3, 7])
def test_equal_prototypes_give_k_ln_k_and_no_gradient(k):
    z, same = randn(4, 6).double().requires_grad_(), randn(4, 6, seed=1).double()
    value = prototype_contrast(z, [same] * k)
    value.sum().backward()
    assert value.tolist() == pytest.approx([k * math.log(k)] * 4)
    assert z.grad.abs().max() < 1e-15


def test_k_ln_k_is_the_minimum_and_equal_cosines_reach_it():
    k = 3
    for seed in range(30):
        prototypes = [randn(5, 4, seed=100 + seed * k + i) for i in range(k)]
        assert prototype_contrast(randn(5, 4, seed=seed), prototypes).min() >= k * math.log(k) - 1e-5
    # the axes of space are equally far from (1, 1, 1), though they differ from each other
    axes = [axis.expand(1, 3) for axis in torch.eye(3)]
    assert prototype_contrast(torch.ones(1, 3), axes).item() == pytest.approx(k * math.log(k), rel=1e-6)
    assert prototype_contrast(torch.tensor([[1.0, 0.0, 0.0]]), axes).item() > k * math.log(k) + 0.1


def test_contrastive_loss_against_a_loop_and_its_descent_direction():
    z, prototypes = randn(3, 6).requires_grad_(), [randn(3, 6, seed=i + 1) for i in range(3)]
    value = contrastive_loss(z, prototypes, positive=1, temperature=0.5)
    expected = [
        -math.log(math.exp(row[1] / 0.5) / sum(math.exp(c / 0.5) for c in row))
        for row in cosines_of(z.detach(), prototypes)
    ]
    assert value.tolist() == pytest.approx(expected, rel=1e-5)
    value.sum().backward()
    moved = (z - 0.1 * normalize(z.grad)).detach()
    assert (contrastive_loss(moved, prototypes, 1, 0.5) < value).all()


def distance_to(k, multiplicity, seed=0):
    sets = [[randn(2, 3, seed=seed + 10 * i), randn(4, seed=seed + 10 * i + 1)] for i in range(k)]
    return sets, SquaredDistance(sets, multiplicity)


def test_squared_distance_is_the_printed_sum():
    sets, distance = distance_to(3, [1, 2, 1])
    theta = [randn(2, 3, seed=99), randn(4, seed=98)]
    expected = sum(
        multiplicity * float((p - a).square().sum())
        for multiplicity, own in zip([1, 2, 1], sets, strict=True)
        for p, a in zip(theta, own, strict=True)
    )
    assert distance(theta).item() == pytest.approx(expected, rel=1e-5)


def test_parameter_term_is_zero_at_the_start_of_stage_1():
    start = [randn(2, 3), randn(4, seed=1)]
    distance = SquaredDistance([start], [3])
    theta = [t.clone().requires_grad_() for t in start]
    distance(theta).backward()
    assert distance(theta).item() == pytest.approx(0.0, abs=1e-12)
    assert all(t.grad.abs().max() < 1e-6 for t in theta)


@pytest.mark.parametrize("multiplicity", [[1, 1, 1], [3, 1, 2]])
def test_the_gradient_is_2k_times_the_difference_to_the_mean_prototype(multiplicity):
    sets, distance = distance_to(3, multiplicity)
    theta = [randn(2, 3, seed=99).requires_grad_(), randn(4, seed=98).requires_grad_()]
    distance(theta).backward()
    k = sum(multiplicity)
    for position, t in enumerate(theta):
        mean = sum(c * own[position] for c, own in zip(multiplicity, sets, strict=True)) / k
        assert torch.allclose(t.grad, 2 * k * (t.detach() - mean), rtol=1e-5, atol=1e-6)


def test_reference_weights_do_not_follow_the_model():
    start = [torch.ones(3)]
    theta = [torch.ones(3, requires_grad=True)]
    distance = SquaredDistance([theta], [2])
    with torch.no_grad():
        theta[0] += 1.0
    assert distance(theta).item() == pytest.approx(2 * 3.0)
    assert distance(start).item() == pytest.approx(0.0)


def test_kl_by_hand_and_with_zero_deviation():
    # N(0, 1): 0. N(2, 0.5^2): (4 + 0.25 - 1 - log 0.25) / 2; a negative deviation is the same spread
    mean, deviation = torch.tensor([[[0.0, 2.0], [0.0, 2.0]]]), torch.tensor([[[1.0, 0.5], [1.0, -0.5]]])
    assert gaussian_kl(mean, deviation).item() == pytest.approx((3.25 + math.log(4)) / 2, rel=1e-6)
    none = torch.zeros(1, 2, 3, requires_grad=True)
    value = gaussian_kl(torch.zeros(1, 2, 3), none)
    value.sum().backward()
    assert torch.isfinite(value).all() and torch.isfinite(none.grad).all()


def test_mean_pair_cosine_leaves_the_diagonal_out():
    # (1, 0), (0, 2), (3, 3): cosines 0, 1/sqrt 2, 1/sqrt 2
    features = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]])
    assert mean_pair_cosine(features).item() == pytest.approx(2 / math.sqrt(2) / 3, rel=1e-6)
    assert mean_pair_cosine(features[:, :1]).item() == 0.0
