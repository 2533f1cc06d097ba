"""Medians, ratios, rounds from stamps, equal losses: by hand."""

import pytest

from benchmarks.harness.contestant import Run, RunError, Stamp
from benchmarks.harness.figures import between, median, per_round, ratio, spread, unequal

A = [{"cpu_s": 3.0, "loss": 0.5}, {"cpu_s": 9.0, "loss": 0.5}, {"cpu_s": 4.0, "loss": 0.5}]
B = [{"cpu_s": 2.0, "loss": 0.505}, {"cpu_s": 1.0, "loss": 0.5}]


def test_median_ratio_and_spread():
    assert median(A, "cpu_s") == 4.0 and median(B, "cpu_s") == 1.5
    assert ratio(A, B, "cpu_s") == pytest.approx(4.0 / 1.5)
    assert spread(A, "cpu_s") == (3.0, 9.0)


def test_what_was_not_measured_has_no_figure():
    assert median([], "cpu_s") is None and spread(A, "mb") is None
    assert ratio(A, [], "cpu_s") is None and ratio(A, [{"cpu_s": 0.0}], "cpu_s") is None


def test_a_round_is_the_mean_between_the_warm_up_and_the_last_one():
    # Rounds end at 10, 12, 15, 18, 30 s: after two of warm-up, rounds 3 and 4 took 6 s; the fifth is evaluated.
    ends = {1: 10, 2: 12, 3: 15, 4: 18, 5: 30}
    run = Run({number: Stamp(wall, 2.0 * wall) for number, wall in ends.items()})
    assert per_round(run, 5) == {"wall_s": 3.0, "cpu_s": 6.0}
    assert per_round(run, 5, warm_up=1) == {"wall_s": pytest.approx(8 / 3), "cpu_s": pytest.approx(16 / 3)}
    assert between(run, 4, 5) == {"wall_s": 12.0, "cpu_s": 24.0}


def test_a_round_that_was_not_seen_is_an_error():
    with pytest.raises(RunError, match="round 2"):
        per_round(Run({1: Stamp(1, 1), 3: Stamp(3, 3), 4: Stamp(4, 4)}), 5)


def test_equal_within_the_tolerance_against_the_reference():
    runs = {"hand": A, "other": B, "nan": [{"loss": float("nan")}], "without": [{"cpu_s": 1.0}]}
    assert unequal(runs, "hand", "loss", 0.02) == {"nan": float("inf")}
    assert unequal(runs, "hand", "loss", 0.001) == {"other": pytest.approx(0.01), "nan": float("inf")}
    assert unequal(runs, "missing", "loss", 0.001) == {}
