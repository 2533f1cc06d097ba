"""The reproduction report: verdicts, the pairs they compare, and the measured formulas."""

import math

import pytest
from scipy.stats import ttest_1samp

from flows.papers.fidelity.claims import FMMAN_CLAIMS, Claim, compare
from flows.papers.fidelity.evaluate_claims import compare_pairs
from flows.papers.fidelity.formulas import PrintedAverage, contrast_by_stage, feature_cosines, printed_sum
from flows.papers.fidelity.page import (
    average_text,
    choices_table,
    contrast_text,
    cosine_text,
    other_metrics,
    results_table,
    table_differences,
    verdict_table,
)
from flows.papers.replicate.results import Point, RowResult, RunResult, TableReport
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.records import ModelRef, RoundRecord, RoundState, Update


def test_the_interval_is_students_paired_interval():
    verdict = compare_pairs([0.5, 0.6, 0.58], [0.45, 0.5, 0.51])
    expected = ttest_1samp([0.05, 0.1, 0.07], 0.0).confidence_interval(0.90)
    assert verdict.mean == pytest.approx(0.22 / 3)
    assert (verdict.low, verdict.high) == pytest.approx((expected.low, expected.high))
    assert verdict.outcome == "holds"


@pytest.mark.parametrize(
    ("winner", "loser", "outcome"),
    [
        ([0.5, 0.51, 0.52], [0.6, 0.61, 0.63], "does not hold"),
        ([0.5, 0.7, 0.4], [0.45, 0.5, 0.6], "undecided"),
        ([0.9], [0.1], "undecided"),  # one seed
        ([], [], "undecided"),
        ([0.9, math.nan, 0.8], [0.1, 0.2, 0.1], "holds"),
        ([0.4, 0.4], [0.4, 0.4], "undecided"),
    ],
)
def test_outcomes(winner, loser, outcome):
    assert compare_pairs(winner, loser).outcome == outcome


def point(macro_ap, cf1=None):
    return Point(2, "", {"macro_ap": macro_ap} | ({} if cf1 is None else {"cf1": cf1}), {}, 0, 0, 0)


def run(seed, rounds, epochs=None):
    return RunResult(seed, f"r{seed}", "", point(rounds, rounds / 2), None if epochs is None else point(epochs))


def table(name="t"):
    rows = [
        RowResult("FMMAN", runs=[run(1, 0.6), run(2, 0.7), run(3, 0.65)]),
        RowResult("FedLGT", runs=[run(2, 0.1, 0.65), run(1, 0.1, 0.5), run(9, 0.1, 0.1)]),
        RowResult("broken", failed="no | such file"),
    ]
    return TableReport(name, "", "", "small", "", [], 2, [], None, rows, {}, "", {}, {})


def test_pairs_are_made_by_seed_and_at_equal_local_epochs():
    found = compare([table()], Claim("", "FMMAN", "FedLGT"), "macro_ap")
    assert found.differences == pytest.approx((0.1, 0.05))
    assert len(compare([table(), table()], Claim("", "FMMAN", "FedLGT"), "macro_ap").differences) == 4


def test_a_metric_that_was_not_measured_makes_no_pair():
    assert compare([table()], Claim("", "FMMAN", "FedLGT"), "cf1").differences == ()
    assert run(1, 0.6).at("epochs").value("cf1") == 0.3
    assert math.isnan(run(1, 0.6).at("epochs").value("micro_ap"))


def test_a_row_that_the_table_does_not_have_is_refused():
    with pytest.raises(UserError, match=r"no such row(.|\n)*FedLGT"):
        table().row("FedAvg")


def test_eq15_as_printed_sums_to_one_over_n_for_equal_clients():
    assert printed_sum([0.3] * 5, [40] * 5) == pytest.approx(1 / 5)
    # by hand: loss shares 0.25, 0.75; size shares 0.4, 0.6
    assert printed_sum([0.1, 0.3], [20, 30]) == pytest.approx(0.25 * 0.4 + 0.75 * 0.6)


def update(client, contrast):
    sums = {"classification": (1.0, 2.0)} | ({"contrast": (contrast, 1.0)} if contrast is not None else {})
    return Update(client, ModelRef("", "", 0), 10, 1, sums, 1.0)


def test_the_contrastive_term_is_collected_by_stage_over_repeats_and_rounds():
    records = [
        RoundRecord(1, RoundState(), updates={1: [update("a", 3.3)], 11: [update("a", 3.2)], 3: []}),
        RoundRecord(2, RoundState(), updates={1: [update("a", None)], 3: [update("a", 3.5), update("b", 3.4)]}),
    ]
    assert contrast_by_stage(records) == {1: (3.2, 3.3), 3: (3.4, 3.5)}


def test_feature_cosines_are_those_of_the_first_and_the_last_training():
    def update_with(cosine):
        return Update("a", ModelRef("", "", 0), 10, 1, {"feature_cosine": (cosine * 4, 4.0)}, 1.0)

    first = RoundRecord(1, RoundState(), updates={1: [update_with(0.9), update_with(0.7)], 3: [update_with(0.6)]})
    last = RoundRecord(2, RoundState(), updates={1: [update_with(0.5)], 3: [update_with(0.2), update_with(0.4)]})
    assert feature_cosines([first, last]) == pytest.approx((0.8, 0.3))
    assert "0.800 | 0.300" in cosine_text({"r1": feature_cosines([first, last])})


def test_the_page_shows_figures_and_escapes_text():
    tables, claims = [table("one"), table("two")], [Claim("FMMAN > FedLGT", "FMMAN", "FedLGT", "a | b")]
    verdicts = verdict_table(tables, claims)
    assert "| FMMAN > FedLGT | FMMAN - FedLGT | +7.50 " in verdicts
    assert "a \\| b" in verdicts
    assert "| FMMAN - FedLGT | two | +7.50 | undecided | +10.00, +5.00 |" in table_differences(tables, claims)
    assert "| FMMAN - FedLGT | n/a (undecided) |" in other_metrics(tables, claims)
    rows = results_table(tables[0])
    assert "65.00 +/- 5.00" in rows and "no \\| such file" in rows and "n/a" in rows
    measured = PrintedAverage((0.2, 0.25), 4, {"macro_ap": 0.5, "micro_f1": 0.4}, {"macro_ap": 0.25, "micro_f1": 0.0})
    assert "0.2000 to 0.2500" in (text := average_text({"r1": measured})) and "25.00" in text
    assert "3.295837" in contrast_text({"r1": {1: (3.2958, 3.2958)}}, {"r1": 3})


def test_every_choice_names_settings_that_exist():
    defaults = as_values(Settings())
    table = choices_table(defaults)
    assert "objective.fmman.eps = 0.015" in table and len(table.splitlines()) >= 17
    names = {name for claim in FMMAN_CLAIMS for name in (claim.winner, claim.loser)}
    assert "FMMAN_without_graph" in names and "FMMAN" in names
