"""Summary statistics, checked by hand."""

import math

import pytest

from tasks.core.summary_statistics import distribution, mean_and_std, worst_decile


def test_worst_decile_by_hand():
    # 11 values: the worst decile is ceil(1.1) = 2 of them, 11 and 10
    assert worst_decile([float(value) for value in range(1, 12)]) == 10.5
    assert worst_decile([3.0, math.nan]) == 3.0
    assert math.isnan(worst_decile([]))
    assert worst_decile([float(value) for value in range(1, 12)], low_is_worst=True) == 1.5


def test_distribution_by_hand():
    found = distribution([1.0, math.nan, 3.0])
    assert found == {"mean": 2.0, "std": 1.0, "worst_decile": 3.0, "min": 1.0, "max": 3.0, "count": 2.0}
    assert distribution([1.0, 3.0], low_is_worst=True)["worst_decile"] == 1.0
    nothing = distribution([math.nan])
    assert nothing.pop("count") == 0 and all(math.isnan(value) for value in nothing.values())


def test_mean_and_sample_standard_deviation_by_hand():
    mean, std = mean_and_std([1.0, math.nan, 3.0])
    assert (mean, std) == (2.0, pytest.approx(math.sqrt(2)))
    assert mean_and_std([4.0]) == (4.0, None)
    mean, std = mean_and_std([math.nan])
    assert math.isnan(mean) and std is None
