"""Figures of a table: means over seeds, and what a run cost up to a point."""

import math

import pytest

from flows.papers.replicate.report import measured, over_seeds
from flows.papers.replicate.tables import Job
from models.errors import UserError
from tasks.core.records import StageLog
from tests.support.fabricated import fabricated_record


def _run(*values):
    """Runs of seeds 0, 1, ... whose macro-AP is given, as pairs at equal rounds and equal epochs."""
    return [
        {"at": {key: {"metrics": {"macro_ap": value}} for key, value in zip(("rounds", "epochs"), pair, strict=True)}}
        for pair in values
    ]


def test_mean_and_sample_standard_deviation_over_seeds():
    row = {"name": "A", "runs": _run((0.1, 0.4), (0.3, 0.4))}
    # (0.1 + 0.3) / 2 = 0.2; deviations -0.1 and 0.1, squares sum to 0.02, over n - 1 = 1
    mean, std = over_seeds(row, "rounds", "macro_ap")
    assert math.isclose(mean, 0.2) and math.isclose(std, math.sqrt(0.02))
    assert over_seeds(row, "epochs", "macro_ap") == (0.4, 0.0)
    assert over_seeds({"runs": _run((0.5, 0.5))}, "rounds", "macro_ap") == (0.5, None)
    two_stage = {"runs": [{"at": {"rounds": {"metrics": {"macro_ap": 0.7}}, "epochs": None}}]}
    assert over_seeds(two_stage, "epochs", "macro_ap") == (0.7, None)
    assert math.isnan(over_seeds({"runs": []}, "rounds", "macro_ap")[0])


def test_costs_are_the_sums_of_all_rounds_up_to_the_point():
    records = [fabricated_record(number) for number in (1, 2, 3, 4)]
    for record in records:
        record.stages[:] = [StageLog("a", 1.0, 10, 30, 5), StageLog("b", 2.0, 100, 100, 50)]
    found = measured(Job("A", 3, None, 2, 4), "run", records)
    first, last = found["at"]["rounds"], found["at"]["epochs"]
    assert (first["bytes_down"], first["bytes_up"], first["seconds"]) == (220, 110, 6)
    assert (last["bytes_down"], last["bytes_up"], last["seconds"]) == (440, 220, 12)
    assert found["bytes_down"] == 440 and found["seed"] == 3
    records[1].metrics.clear()
    with pytest.raises(UserError, match="round 2 was not scored"):
        measured(Job("A", 3, None, 2, 4), "run", records)
