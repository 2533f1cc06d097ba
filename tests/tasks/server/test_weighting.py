"""Weights of the clients: sample counts, equal ones, and the change from one to the other over the rounds."""

import math
from fractions import Fraction

import pytest
from pydantic import ValidationError

from models.errors import UserError
from tasks.core.weighting_settings import WeightingSettings
from tasks.server.aggregation import sample_count_weights
from tasks.server.weighting import dynamic_weights, frequency_weights, progress, round_weights, shares

SIZES = {"a": 800, "b": 100, "c": 100}


def dynamic(**settings):
    return WeightingSettings(name="dynamic", **({"horizon": 5} | settings))


def weights(settings, sizes=SIZES, reported=None, round_=1):
    return round_weights(settings, sizes, reported or list(sizes), round_)


def test_the_weights_go_linearly_from_the_sample_shares_to_equal_ones():
    """8:1:1 in 5 rounds, by hand: 0.8 falls by (0.8 - 1/3) / 4 a round, 0.1 rises by (1/3 - 0.1) / 4."""
    found = [weights(dynamic(), round_=number) for number in range(1, 8)]
    assert found[0] == (0.8, 0.1, 0.1) and found[2] == pytest.approx((17 / 30, 13 / 60, 13 / 60))
    assert [row[0] for row in found[:5]] == pytest.approx([0.8, 41 / 60, 17 / 30, 0.45, 1 / 3])
    assert found[4] == found[5] == found[6] == (1 / 3, 1 / 3, 1 / 3)
    assert all(math.fsum(row) == pytest.approx(1, abs=1e-15) for row in found)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "step"])
@pytest.mark.parametrize("clients", [1, 3, 7, 11])
def test_equal_sizes_are_the_uniform_mean_to_the_last_bit_in_every_round(schedule, clients):
    sizes = {f"c{k:02}": 603 for k in range(clients)}
    uniform = weights(WeightingSettings(name="uniform"), sizes)
    for number in range(1, 33):
        assert weights(dynamic(schedule=schedule, horizon=30), sizes, round_=number) == uniform
    for reported in (list(sizes)[:1], list(sizes)[1:]):
        if reported:
            expected = weights(WeightingSettings(name="uniform"), sizes, reported)
            assert weights(dynamic(schedule=schedule, horizon=30), sizes, reported, 13) == expected


def test_the_first_round_has_the_weights_of_fedavg_to_the_last_bit():
    sizes = {"a": 17, "b": 3, "c": 59, "d": 101}
    assert list(weights(dynamic(), sizes)) == sample_count_weights(list(sizes.values()))
    assert list(weights(dynamic(), sizes, ["b", "d"])) == sample_count_weights([3, 101])
    assert weights(WeightingSettings()) is None, "sample counts are the aggregation's default"


@pytest.mark.parametrize("round_", range(1, 12))
def test_the_schedules_run_from_0_to_1(round_):
    done = min(1.0, (round_ - 1) / 8)
    assert float(progress("linear", 9, round_)) == pytest.approx(done)
    assert float(progress("cosine", 9, round_)) == pytest.approx((1 - math.cos(math.pi * done)) / 2)
    assert progress("step", 9, round_) == (round_ >= 9)
    for schedule in ("linear", "cosine", "step"):
        assert progress(schedule, 1, round_) == 0, "with a horizon of one round the start's weights stay"


def test_who_is_absent_changes_the_sum_and_not_the_schedule():
    """Round 3 of 5: W = (17/30, 13/60, 13/60) among all; of a and c the shares are 34/47 and 13/47."""
    assert weights(dynamic(), reported=["a", "c"], round_=3) == pytest.approx((34 / 47, 13 / 47))


def test_clients_without_images_count_neither_in_n_nor_in_the_sum():
    sizes = SIZES | {"d": 0}
    assert weights(dynamic(), sizes, ["a", "b", "c"], 3) == weights(dynamic(), round_=3)
    with pytest.raises(UserError, match="without training images has no weight"):
        weights(dynamic(), sizes, ["a", "d"])


def test_both_ends_may_be_any_weights():
    ends = dynamic(start={"a": 0, "b": 1, "c": 3}, end="samples", horizon=3)
    assert weights(ends, round_=1) == (0.0, 0.25, 0.75)
    assert weights(ends, round_=2) == pytest.approx((0.4, 0.175, 0.425))
    assert weights(ends, round_=3) == (0.8, 0.1, 0.1)
    with pytest.raises(UserError, match="no client that reported has a weight above 0"):
        weights(ends, reported=["a"], round_=1)
    assert shares({"a": 1, "b": 1, "c": 2}, SIZES) == {"a": Fraction(1, 4), "b": Fraction(1, 4), "c": Fraction(1, 2)}
    with pytest.raises(UserError, match="no client has a weight above 0"):
        shares({"a": 0, "b": 0, "z": 1}, {"a": 1, "b": 1})


def test_the_order_of_clients_changes_nothing():
    there = dict(zip("abc", dynamic_weights(SIZES, list("abc"), Fraction(1, 3)), strict=True))
    back = dict(zip("cba", dynamic_weights(dict(reversed(SIZES.items())), list("cba"), Fraction(1, 3)), strict=True))
    assert there == back


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "dynamic"}, "set aggregation.weighting.horizon"),
        ({"horizon": 3}, "horizon is 3, but it is for the weighting dynamic, and name is samples"),
        ({"name": "uniform", "schedule": "step"}, "schedule is step, but"),
        ({"name": "dynamic", "horizon": 3, "start": {"a": 0.0}}, "start gives no client a weight above 0"),
        ({"name": "dynamic", "horizon": 3, "end": {"a": -1}}, "greater than or equal to 0"),
        ({"name": "dynamic", "horizon": 3, "end": {"a": math.inf}}, "finite"),
        ({"name": "dynamic", "horizon": 0}, "greater than or equal to 1"),
        ({"mode": "inverse"}, "mode is inverse, but it is for the weighting fedfreq, and name is samples"),
        ({"name": "fedfreq", "horizon": 3}, "horizon is 3, but"),
        ({"name": "fedfreq", "mode": "log"}, "complement"),
    ],
)
def test_weightings_without_sense_are_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        WeightingSettings.model_validate(values)


def test_weights_given_one_by_one_name_every_client_and_no_other():
    given = dynamic(end={"a": 1, "b": 2, "z": 3})
    with pytest.raises(ValueError, match=r"weighting.end needs .*without one: c; not in the partition: z"):
        given.check(["a", "b", "c"])
    given.check(["a", "b", "z"])
    WeightingSettings().check(["a"])


def test_a_client_that_took_part_more_often_counts_less():
    """q = 1, 2, 3: p = 1/6, 1/3, 1/2, so w = (5/6, 2/3, 1/2) / 2; inverse: 6/11, 3/11, 2/11."""
    assert frequency_weights([1, 2, 3]) == [5 / 12, 1 / 3, 1 / 4]
    assert frequency_weights([1, 2, 3], "inverse") == [6 / 11, 3 / 11, 2 / 11]
    assert frequency_weights([1, 2, 3], samples=[12, 30, 20]) == [0.25, 0.5, 0.25]
    assert frequency_weights([1, 1], samples=[0, 4]) == [0, 1]
    with pytest.raises(UserError, match="no client that reported has images"):
        frequency_weights([1, 2], samples=[0, 0])


@pytest.mark.parametrize("mode", ["complement", "inverse"])
def test_participation_weights_sum_to_1_lie_in_bounds_and_are_uniform_for_equal_counts(mode):
    for counts in ([7, 1], [1, 1, 50], [3, 1, 4, 1, 5, 9, 2, 6], list(range(1, 41))):
        found = frequency_weights(counts, mode)
        assert math.fsum(found) == pytest.approx(1, abs=1e-15)
        assert mode == "inverse" or all(0 < w < 1 / (len(counts) - 1) for w in found)
        assert found == frequency_weights(counts[::-1], mode)[::-1]
    for m in (1, 2, 3, 7, 49):
        assert frequency_weights([6] * m, mode) == [1 / m] * m


def test_participations_are_those_of_the_clients_that_reported():
    """b failed: the divisor is the number that reported, minus 1."""
    counts, chosen = {"a": 3, "b": 9, "c": 1}, WeightingSettings(name="fedfreq")
    assert round_weights(chosen, SIZES, ["a", "c"], 5, counts) == (0.25, 0.75)
    assert round_weights(chosen, SIZES, ["b"], 5, counts) == (1.0,)
    by_images = WeightingSettings(name="fedfreq", times_samples=True)
    assert round_weights(by_images, SIZES, ["a", "c"], 5, counts, {"a": 30, "c": 10}) == (0.5, 0.5)
