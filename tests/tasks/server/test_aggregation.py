"""Weights of eqs 14 and 15, the mean, steps from the old value, BatchNorm statistics."""

import math

import numpy as np
import pytest
import torch

from models.errors import UserError
from tasks.server.aggregation import (
    check_weights,
    loss_weights,
    moved,
    pooled_variance,
    sample_count_weights,
    weighted_mean,
)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_sample_count_weights_are_fractions():
    assert sample_count_weights([10, 30]) == [0.25, 0.75]
    for sizes in ([0, 0], [4, -1]):
        with pytest.raises(UserError, match="no client has training images"):
            sample_count_weights(sizes)


def test_eq15_by_hand():
    # products 2*10, 1*30, 5*10 of 100
    assert loss_weights([2.0, 1.0, 5.0], [10, 30, 10]) == (pytest.approx([0.2, 0.3, 0.5]), "")
    assert loss_weights([2.0, 1.0, 5.0], [10, 30, 10], "size") == (pytest.approx([0.2, 0.6, 0.2]), "")
    assert loss_weights([2.0, 1.0, 5.0], [10, 30, 10], "loss") == (pytest.approx([0.25, 0.125, 0.625]), "")


@pytest.mark.parametrize("mode", ["loss_size", "loss", "size"])
def test_loss_weights_sum_to_one_and_a_higher_loss_weighs_more(mode):
    rng = np.random.default_rng(3)
    for count in (1, 2, 20, 200):
        losses, sizes = rng.uniform(0.01, 3, count).tolist(), rng.integers(1, 5000, count).tolist()
        weights, note = loss_weights(losses, sizes, mode)
        assert abs(math.fsum(weights) - 1) < 1e-12 and not note
        check_weights(weights)
    first, _ = loss_weights([1.0, 1.0], [5, 5], mode)
    second, _ = loss_weights([2.0, 1.0], [5, 5], mode)
    assert (second[0] > first[0]) == (mode != "size")


def test_equal_losses_are_fedavg():
    assert loss_weights([0.7] * 3, [10, 30, 60])[0] == pytest.approx(sample_count_weights([10, 30, 60]))


@pytest.mark.parametrize("losses", [[math.nan, 1.0], [math.inf, 1.0], [-0.1, 1.0], [0.0, 0.0]])
def test_unusable_losses_fall_back_to_sample_counts_with_a_note(losses):
    weights, note = loss_weights(losses, [10, 30])
    assert weights == [0.25, 0.75]
    assert "by sample count" in note and str(losses[0]) in note


def test_a_huge_reported_loss_must_not_make_the_weights_nan():
    weights, _ = loss_weights([1e308, 1.0], [50, 50])
    assert all(math.isfinite(weight) for weight in weights) and math.fsum(weights) == pytest.approx(1.0)


@pytest.mark.parametrize("weights", [[0.5, 0.5 + 1e-6], [1.5, -0.5], [0.5, 0.4], [math.nan, math.nan]])
def test_invalid_weights_are_refused(weights):
    with pytest.raises(UserError, match="must sum to 1"):
        check_weights(weights)


def test_the_mean_against_a_loop():
    values, weights = [randn(2, 3, seed=i) for i in range(3)], [0.2, 0.3, 0.5]
    mean = weighted_mean(values, weights)
    assert mean.dtype == torch.float64
    for i in range(2):
        for j in range(3):
            by_hand = sum(a * float(v[i, j]) for a, v in zip(weights, values, strict=True))
            assert mean[i, j].item() == pytest.approx(by_hand, rel=1e-12)


def test_the_mean_is_summed_in_float64():
    # In float32 the small value would be lost beside 2^24 and the result be 0.
    values = [torch.tensor([2.0**24]), torch.tensor([1.0]), torch.tensor([-(2.0**24)])]
    assert weighted_mean(values, [1.0, 1.0, 1.0]).item() == 1.0


def test_pooled_variance_is_the_variance_of_the_pooled_values():
    rng = np.random.default_rng(0)
    parts = [rng.normal(loc, scale, size) for loc, scale, size in ((0, 1, 30), (5, 2, 60), (-3, 0.5, 10))]
    weights = [len(part) / 100 for part in parts]
    means, variances = ([torch.tensor([value(part)]) for part in parts] for value in (np.mean, np.var))
    pooled = np.concatenate(parts)
    assert pooled_variance(means, variances, weights).item() == pytest.approx(pooled.var())
    assert weighted_mean(means, weights).item() == pytest.approx(pooled.mean())
    assert weighted_mean(variances, weights).item() < pooled.var() - 1


def test_a_step_from_the_old_value_by_hand():
    # 10 + 0.5 (12 - 10) + 0.75 (6 - 10) = 8, and with coefficients that sum to 1 the mean
    start, values = torch.tensor([10.0]), [torch.tensor([12.0]), torch.tensor([6.0])]
    assert moved(start, values, [0.5, 0.75]).item() == 8.0
    assert moved(start, values, [0.5, 0.5]).item() == 9.0
    assert moved(start, values, [0.0, 0.0]).item() == 10.0


def test_pooled_variance_is_never_negative():
    means, variances = [torch.tensor([1e4 + 1e-3])] * 3, [torch.tensor([0.0])] * 3
    assert pooled_variance(means, variances, [0.2, 0.3, 0.5]).item() >= 0
