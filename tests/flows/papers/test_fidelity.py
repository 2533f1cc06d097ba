"""The fidelity report's judgement, its reading of tables, and the measured formulas."""

import math

import pytest
from scipy.stats import ttest_1samp

from flows.papers.fidelity.claims import FMMAN_CLAIMS, Claim, compare, figure, row_of
from flows.papers.fidelity.evaluate_claims import judge
from flows.papers.fidelity.formulas import PrintedAverage, contrast_by_stage, feature_cosines, printed_sum
from flows.papers.fidelity.page import (
    average_text,
    choices_table,
    claims_table,
    contrast_text,
    cosine_text,
    results_table,
)
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.records import ModelRef, RoundRecord, Update


def test_the_interval_is_students():
    verdict = judge([0.5, 0.6, 0.58], [0.45, 0.5, 0.51])
    expected = ttest_1samp([0.05, 0.1, 0.07], 0.0).confidence_interval(0.90)
    assert verdict.mean == pytest.approx(0.22 / 3)
    assert (verdict.low, verdict.high) == pytest.approx((expected.low, expected.high))
    assert verdict.mark == "holds"


@pytest.mark.parametrize(
    ("winner", "loser", "mark"),
    [
        ([0.5, 0.51, 0.52], [0.6, 0.61, 0.63], "does not hold"),
        ([0.5, 0.7, 0.4], [0.45, 0.5, 0.6], "undecided"),
        ([0.9], [0.1], "undecided"),  # one seed decides nothing
        ([], [], "undecided"),
        ([0.9, math.nan, 0.8], [0.1, 0.2, 0.1], "holds"),
        ([0.4, 0.4], [0.4, 0.4], "undecided"),
    ],
)
def test_marks(winner, loser, mark):
    assert judge(winner, loser).mark == mark


def run(seed, rounds, epochs=None):
    at = {"rounds": {"round": 2, "metrics": {"macro_ap": rounds, "cf1": rounds / 2}}}
    return {"seed": seed, "run_id": f"r{seed}", "at": at | {"epochs": epochs and {"metrics": {"macro_ap": epochs}}}}


TABLE = {
    "table": "t",
    "rows": [
        {"name": "FMMAN", "runs": [run(1, 0.6), run(2, 0.7), run(3, 0.65)], "failed": None},
        {"name": "FedLGT", "runs": [run(2, 0.1, 0.65), run(1, 0.1, 0.5), run(9, 0.1, 0.1)], "failed": None},
        {"name": "broken", "runs": [], "failed": "no | such file"},
    ],
}


def test_pairs_are_made_by_seed_and_at_equal_local_epochs():
    found = compare([TABLE], Claim("", "FMMAN", "FedLGT"), "macro_ap")
    assert found.differences == pytest.approx((0.1, 0.05))
    assert len(compare([TABLE, TABLE], Claim("", "FMMAN", "FedLGT"), "macro_ap").differences) == 4
    assert figure(run(1, 0.6), "cf1") == 0.3 and math.isnan(figure(run(1, 0.6), "micro_ap"))
    with pytest.raises(UserError, match=r"no such row(.|\n)*FedLGT"):
        row_of(TABLE, "FedAvg")


def test_eq15_as_printed_sums_to_one_over_n_for_equal_clients():
    assert printed_sum([0.3] * 5, [40] * 5) == pytest.approx(1 / 5)
    # by hand: loss shares 0.25, 0.75; size shares 0.4, 0.6
    assert printed_sum([0.1, 0.3], [20, 30]) == pytest.approx(0.25 * 0.4 + 0.75 * 0.6)


def update(client, contrast):
    sums = {"classification": (1.0, 2.0)} | ({"contrast": (contrast, 1.0)} if contrast is not None else {})
    return Update(client, ModelRef("", "", 0), 10, 1, sums, 1.0)


def test_the_contrast_is_gathered_by_stage_over_repeats_and_rounds():
    records = [
        RoundRecord(1, ModelRef("", "", 0), updates={1: [update("a", 3.3)], 11: [update("a", 3.2)], 3: []}),
        RoundRecord(2, ModelRef("", "", 0), updates={1: [update("a", None)], 3: [update("a", 3.5), update("b", 3.4)]}),
    ]
    assert contrast_by_stage(records) == {1: (3.2, 3.3), 3: (3.4, 3.5)}


def test_the_features_cosine_is_that_of_the_first_and_the_last_training():
    def update_with(cosine):
        return Update("a", ModelRef("", "", 0), 10, 1, {"feature_cosine": (cosine * 4, 4.0)}, 1.0)

    first = RoundRecord(
        1, ModelRef("", "", 0), updates={1: [update_with(0.9), update_with(0.7)], 3: [update_with(0.6)]}
    )
    last = RoundRecord(2, ModelRef("", "", 0), updates={1: [update_with(0.5)], 3: [update_with(0.2), update_with(0.4)]})
    assert feature_cosines([first, last]) == pytest.approx((0.8, 0.3))
    assert "0.800 | 0.300" in cosine_text({"r1": feature_cosines([first, last])})


def test_the_page_shows_figures_and_survives_odd_text():
    page = claims_table([TABLE], [Claim("FMMAN > FedLGT", "FMMAN", "FedLGT", "a | b")])
    assert "+7.50" in page and "a \\| b" in page and "undecided" in page
    rows = results_table(TABLE)
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
