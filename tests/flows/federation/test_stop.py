"""The end of a run before its last round, as a function of its rounds."""

import pytest
from pydantic import ValidationError

from flows.federation.stop import evaluations, is_better, metric_reason, reached_end, stop_reason, time_reason
from models.errors import UserError
from tasks.core.federation_settings import FederationSettings, StopSettings
from tasks.core.records import ModelRef, RoundRecord, StageLog
from tasks.core.round_state import RoundState
from tasks.core.run_end import RunEnd, read_end, write_end
from tasks.core.store import Store

METRIC = "val_macro_ap"


def rounds(*values, metric=METRIC):
    """Records of rounds 1, 2, ...; ``None``: a round that was not evaluated."""
    return [
        record(number, {} if value is None else {metric: value, "macro_ap": 0.9})
        for number, value in enumerate(values, 1)
    ]


def record(number, metrics):
    return RoundRecord(round=number, state=RoundState.starting_from(ModelRef("", "", 0)), metrics=metrics)


def reason(records, every=1, seconds=0.0, metric=METRIC, **stop):
    return stop_reason(records, StopSettings(**stop), metric, every, seconds)


def last_round(values, every=1, metric=METRIC, **stop):
    """The round after which a run with these validation values ends, ``None`` if it goes on."""
    end = reached_end(rounds(*values, metric=metric), StopSettings(**stop), metric, every, None)
    return end and end.round


def test_patience_counts_evaluations_since_the_best_value():
    values = [0.3, 0.5, 0.4, 0.45, 0.5, 0.6]  # 0.5 again is no new best value
    assert last_round(values, patience=3) == 5
    assert last_round(values, patience=4) is None
    assert last_round(values, patience=1) == 3
    found = reason(rounds(*values[:5]), patience=3)
    assert found == "val_macro_ap has not become better than 0.5 in round 2 for 3 evaluations"


def test_an_improvement_must_be_larger_than_min_delta():
    values = [0.30, 0.31, 0.32, 0.33]
    assert last_round(values, patience=2) is None
    assert last_round(values, patience=2, min_delta=0.015) is None  # round 3 is better than round 1 by more than that
    assert last_round(values, patience=2, min_delta=0.025) == 3
    assert "by more than 0.025 than 0.3 in round 1" in reason(rounds(*values[:3]), patience=2, min_delta=0.025)


def test_a_target_ends_the_run_in_the_round_that_reaches_it():
    assert last_round([0.3, 0.5, 0.7], target=0.5) == 2
    assert reason(rounds(0.3, 0.5), target=0.5) == "val_macro_ap 0.5 in round 2 has reached the target 0.5"


def test_the_less_of_a_loss_the_better():
    assert last_round([0.9, 0.5, 0.6, 0.7], metric="val_loss", patience=2) == 4
    assert last_round([0.9, 0.5, 0.4], metric="val_loss", target=0.45) == 3


def test_undefined_values_are_no_improvement():
    nan = float("nan")
    assert last_round([nan, 0.1, nan], patience=2) is None
    assert last_round([0.1, nan, nan], patience=2) == 3
    assert last_round([nan, nan, nan], patience=2) == 3
    assert is_better(0.1, nan, METRIC) and not is_better(nan, 0.1, METRIC) and not is_better(nan, nan, METRIC)


def test_without_settings_nothing_ends_a_run():
    assert last_round([0.5, 0.1, 0.0, 0.0]) is None
    assert reason(rounds(0.5), seconds=1e9) is None
    assert metric_reason([], METRIC, StopSettings(patience=1)) is None
    assert stop_reason([], StopSettings(max_hours=1), METRIC, 1, 1e9) is None


def test_time_ends_a_run_with_any_round():
    assert reason(rounds(None, None), seconds=7200.0, max_hours=2) == "2 hours are over, the limit is 2"
    assert reason(rounds(None, None), seconds=7199.0, max_hours=2) is None
    assert time_reason(3600.0 * 2.5, StopSettings(max_hours=2)) == "2.5 hours are over, the limit is 2"


def test_megabytes_end_a_run_after_the_round_that_reaches_them():
    records = rounds(None, None, None)
    for entry in records:
        entry.stages = [StageLog("a", bytes_down=300_000, bytes_up=100_000), StageLog("b", bytes_up=100_000)]
    assert reason(records[:1], max_mb=1.0) is None
    assert reason(records[:2], max_mb=1.0) == "1 MB have travelled, the limit is 1"
    assert reached_end(records, StopSettings(max_mb=1.0), METRIC, 1, None).round == 2
    assert reached_end(records, StopSettings(max_mb=1.6), METRIC, 1, None) is None


def test_only_the_rounds_that_evaluation_every_names_count():
    """Round 5 was the last one once, so it was evaluated; a run that was longer from the start has no value there."""
    extended = rounds(None, 0.5, None, 0.4, 0.3, 0.2, None, None)
    straight = rounds(None, 0.5, None, 0.4, None, 0.2, None, None)
    assert evaluations(extended, METRIC, 2) == evaluations(straight, METRIC, 2) == [(2, 0.5), (4, 0.4), (6, 0.2)]
    stop = StopSettings(patience=2)
    ends = [reached_end(records, stop, METRIC, 2, None) for records in (extended, straight)]
    assert ends[0] == ends[1] and ends[0].round == 6


def test_a_metric_that_no_evaluation_has_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="no such metric") as caught:
        reason(rounds(0.5), metric="val_accuracy", patience=1)
    assert "val_macro_ap" in str(caught.value) and "val_accuracy" in str(caught.value)
    with pytest.raises(UserError, match="validation images"):
        reason([record(1, {"macro_ap": 0.5})], patience=1)


def test_a_recorded_end_counts_while_the_settings_are_the_same():
    by_time = StopSettings(max_hours=2)
    kept = RunEnd(2, "2 hours are over, the limit is 2", by_time.model_dump(mode="json"))
    records = rounds(0.5, 0.4, 0.3)
    assert reached_end(records, by_time, METRIC, 1, kept) == kept
    assert reached_end(records, by_time, METRIC, 1, None) is None, "time that is over is not known from the rounds"
    assert reached_end(records, StopSettings(max_hours=3), METRIC, 1, kept) is None
    assert reached_end(records[:1], by_time, METRIC, 1, kept) is None, "its round is not there any more"
    changed = reached_end(records, StopSettings(patience=1), METRIC, 1, kept)
    assert (changed.round, changed.stop["patience"]) == (2, 1)


def test_an_end_is_written_read_and_removed(tmp_path):
    store, end = Store(tmp_path), RunEnd(3, "because", StopSettings(patience=2).model_dump(mode="json"))
    assert read_end(store) is None
    write_end(store, end)
    assert read_end(store) == end
    store.write_json("stopped.json", {"round": "3", "reason": "because", "stop": {}})
    with pytest.raises(UserError, match="end is damaged"):
        read_end(store)
    write_end(store, None)
    assert read_end(store) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stop": {"metric": "macro_ap", "patience": 2}}, "String should match pattern"),
        ({"stop": {"metric": "val_macro_ap"}}, "neither patience nor target is set"),
        ({"stop": {"target": 0.5, "min_delta": 0.1}}, "min_delta is 0.1, but it is for patience"),
        ({"stop": {"max_hours": 0}}, "greater than 0"),
        ({"required": ["a", "a"]}, "more than once"),
        ({"required": ["a", "b"], "clients_per_round": 1}, "more than clients_per_round 1"),
    ],
)
def test_settings_without_sense_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        FederationSettings.model_validate(settings)
