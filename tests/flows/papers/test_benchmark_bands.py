"""The rule of the bands, and when a difference is a claim."""

import math

import numpy as np
import pytest

from flows.papers.benchmark.bands import band, inside, published_margin
from flows.papers.benchmark.curves import STATISTICS, rounds_until


@pytest.mark.parametrize(
    ("published", "own_std", "expected"),
    [
        ([85.85], None, (83.35, 88.35)),  # a single value: 2.5, whatever ours scatter
        ([85.85], 3.0, (83.35, 88.35)),
        ([99.47], None, (96.97, 100.0)),  # percent
        ([88.1, 88.4, 88.6], None, (87.1, 89.6)),  # several: 1.0 at least
        ([68.2, 63.4], 0.2, (62.4, 69.2)),
        ([68.2, 63.4], 0.8, (61.8, 69.8)),  # or twice our own standard deviation
    ],
)
def test_bands_by_hand(published, own_std, expected):
    assert band(published, own_std) == pytest.approx(expected)


def test_the_bounds_belong_to_the_band_as_printed():
    bounds = band([88.1, 88.6])
    assert inside(87.1, bounds) and inside(89.604, bounds)
    assert not inside(87.09, bounds) and not inside(89.61, bounds)
    assert not inside(math.nan, bounds)


def test_the_margin_is_the_smallest_over_sources_with_both_rows():
    better, worse = {"a": 82.6, "b": 82.22, "c": 99.0}, {"a": 80.45, "b": 77.33, "d": 0.0}
    assert published_margin(better, worse) == pytest.approx(2.15)
    assert published_margin({"a": 1.0}, {"b": 0.0}) is None


def test_rounds_until_a_target():
    assert rounds_until([10.0, math.nan, 50.0, 40.0, 60.0], 50.0) == 3
    assert math.isnan(rounds_until([10.0, math.nan], 50.0))


def test_statistics_of_a_curve():
    curve = [50.0, 70.0, math.nan, 79.6, 80.0, 80.4, 79.8, 80.2, 79.6]
    found = {name: statistic(curve) for name, statistic in STATISTICS.items()}
    # The plateau is the mean of 80.0, 80.4, 79.8, 80.2, 79.6: 80.0, so 79.5 is near it
    assert found["last"] == 79.6 and found["best"] == 80.4 and found["best_round"] == 6 and found["plateau_round"] == 4
    changes = [0.4, -0.6, 0.4, -0.6]  # of the last half, from 80.0 on
    assert found["roughness"] == pytest.approx(np.std(changes, ddof=1))
    assert all(math.isnan(statistic([math.nan, math.nan])) for statistic in STATISTICS.values())
