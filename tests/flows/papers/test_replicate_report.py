"""Figures of a table: means over seeds, and what a run cost up to a round."""

import math

import pytest

from flows.papers.replicate.report import run_result
from flows.papers.replicate.results import Point, RowResult, RunResult
from flows.papers.replicate.tables import PlannedRun
from models.errors import UserError
from tasks.core.records import StageLog
from tests.support.fabricated import fabricated_record


def point(macro_ap):
    return Point(1, "", {"macro_ap": macro_ap}, {}, 0, 0, 0)


def row(*pairs):
    """A row whose runs have the given macro-AP at equal rounds and, unless ``None``, at equal epochs."""
    runs = [
        RunResult(seed, "r", "", point(first), None if last is None else point(last))
        for seed, (first, last) in enumerate(pairs)
    ]
    return RowResult("A", runs=runs)


def test_mean_and_sample_standard_deviation_over_seeds():
    found = row((0.1, 0.4), (0.3, 0.4))
    # (0.1 + 0.3) / 2 = 0.2; deviations -0.1 and 0.1, squares sum to 0.02, over n - 1 = 1
    mean, std = found.mean_and_std("rounds", "macro_ap")
    assert math.isclose(mean, 0.2) and math.isclose(std, math.sqrt(0.02))
    assert found.mean_and_std("epochs", "macro_ap") == (0.4, 0.0)
    assert row((0.5, 0.5)).mean_and_std("rounds", "macro_ap") == (0.5, None)
    assert row((0.7, None)).mean_and_std("epochs", "macro_ap") == (0.7, None)
    assert math.isnan(row().mean_and_std("rounds", "macro_ap")[0])
    assert math.isnan(row((0.5, 0.5), (math.nan, 0.5)).mean_and_std("rounds", "macro_ap")[0])
    assert math.isnan(row((0.5, 0.5)).mean_and_std("rounds", "not_measured")[0])


def test_costs_are_the_sums_of_all_rounds_up_to_the_point():
    records = [fabricated_record(number) for number in (1, 2, 3, 4)]
    for record in records:
        record.stages[:] = [StageLog("a", 1.0, 10, 30, 5), StageLog("b", 2.0, 100, 100, 50)]
    found = run_result(PlannedRun("A", 3, None, 2, 4), "run", records)
    assert (found.rounds.bytes_down, found.rounds.bytes_up, found.rounds.seconds) == (220, 110, 6)
    assert (found.epochs.bytes_down, found.epochs.bytes_up, found.epochs.seconds) == (440, 220, 12)
    assert found.as_dict()["bytes_down"] == 440 and found.seed == 3
    records[1].metrics.clear()
    with pytest.raises(UserError, match="round 2 was not evaluated"):
        run_result(PlannedRun("A", 3, None, 2, 4), "run", records)
