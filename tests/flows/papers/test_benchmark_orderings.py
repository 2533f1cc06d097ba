"""Claims on orderings between a benchmark's rows: paired by seed, judged by the interval of the mean difference."""

from dataclasses import replace

import pytest

from flows.papers.benchmark.cell_run import CellRun
from flows.papers.benchmark.page import page
from flows.papers.benchmark.plan import make_benchmark_plan
from flows.papers.benchmark.results import BenchmarkReport, CellRow
from flows.papers.benchmark.schema import load_benchmark
from models.errors import UserError
from tests.support.benchmark import BENCHMARK, written


def run(seed, curve):
    return CellRun(seed, f"run-{seed}", "commit 0123456789ab", 3, list(curve), 2.0 * len(curve))


PAIRED = {"kind": "paired", "cell": "C1", "text": "FedAvg is better", "better": "C1-fedavg", "worse": "C1-fedprox"}


def judged(folder, better, worse, scale="full", also=None, **claim):
    """What a claim on an ordering gives for two rows' curves by seed, and the page."""
    protocols = {"plain": BENCHMARK["protocols"]["plain"] | {"also": ["spread"]}}
    benchmark = load_benchmark(written(folder, claims=[PAIRED | claim], protocols=protocols))
    found = BenchmarkReport(benchmark, scale, {name: CellRow(name) for name in benchmark.rows})
    for row, curves, number in (("C1-fedavg", better, 0), ("C1-fedprox", worse, 1)):
        spread = {"spread": also[number]} if also else {}
        found.rows[row].runs = [replace(run(seed, curve), also=spread) for seed, curve in enumerate(curves)]
    return found.claim(benchmark.claims[0]), page(found)


def test_an_ordering_is_judged_seed_by_seed(tmp_path):
    better, worse = [[1, 2, 62], [1, 2, 71], [1, 2, 80]], [[1, 2, 60], [1, 2, 68], [1, 2, 79]]
    (text, verdict), shown = judged(tmp_path, better, worse)
    # Differences 2, 3, 1: mean 2, standard error 1/sqrt(3), t(0.95, 2) = 2.920
    assert text == "+2.00 [+0.31, +3.69] (3 seeds)" and verdict == "holds"
    assert "FedAvg is better: last of accuracy, C1-fedavg above C1-fedprox" in shown
    assert judged(tmp_path, worse, better)[0] == ("-2.00 [-3.69, -0.31] (3 seeds)", "does not hold")
    assert judged(tmp_path, better, worse, scale="small")[0][1] == "holds"
    assert judged(tmp_path, better[:1], worse[:1])[0] == ("+2.00 (1 seed)", "undecided")


def test_an_ordering_may_be_of_another_metric_downwards_or_within_a_margin(tmp_path):
    curves = [[1, 2, 60], [1, 2, 61]]
    (text, verdict), shown = judged(
        tmp_path, curves, curves, also=([9, 9, 5.0], [9, 9, 8.0]), metric="spread", lower=True
    )
    assert (text, verdict) == ("-3.00 [-3.00, -3.00] (2 seeds)", "holds")
    assert "last of spread, C1-fedavg below C1-fedprox" in shown and "| C1-fedavg | 5.00 +/- 0.00 |" in shown
    worse = [[1, 2, 60.5], [1, 2, 62.0]]  # differences -0.5 and -1.0, inside 1 point
    assert judged(tmp_path, curves, worse, margin=1.0)[0][1] == "undecided"  # two seeds: a wide interval
    assert judged(tmp_path, curves, [[1, 2, 60.5], [1, 2, 61.5]], margin=1.0)[0][1] == "holds"
    with pytest.raises(UserError, match="no such name dice"):
        judged(tmp_path, curves, curves, metric="dice")


def test_an_ordering_may_claim_equality_or_compare_two_metrics(tmp_path):
    curves = [[1, 2, 60], [1, 2, 61]]
    (text, verdict), shown = judged(tmp_path, curves, curves, equal=True)
    assert (text, verdict) == ("+0.00 [+0.00, +0.00] (2 seeds)", "holds") and "C1-fedavg equal to C1-fedprox" in shown
    assert judged(tmp_path, curves, [[1, 2, 60], [1, 2, 61.5]], equal=True)[0][1] == "does not hold"
    spread = ([9, 9, 1.0], [9, 9, 58.0])
    assert judged(tmp_path, curves, curves, also=spread, worse_metric="spread")[0][0].startswith("+2.50 [")


LEVEL = {"kind": "level", "cell": "C1", "text": "FedAvg is above", "row": "C1-fedavg"}


def level(folder, curves, scale="small", **claim):
    """What a claim on one row's level gives, and the page."""
    benchmark = load_benchmark(written(folder, claims=[LEVEL | claim]))
    found = BenchmarkReport(benchmark, scale, {name: CellRow(name) for name in benchmark.rows})
    found.rows["C1-fedavg"].runs = [run(seed, curve) for seed, curve in enumerate(curves)]
    return found.claim(benchmark.claims[0]), page(found)


def test_a_level_is_judged_by_the_interval_of_its_mean(tmp_path):
    curves = [[1, 2, 62], [1, 2, 71], [1, 2, 80]]
    # Mean 71, standard error 9/sqrt(3), t(0.95, 2) = 2.920: 15.17 to each side
    (text, verdict), shown = level(tmp_path, curves, value=50)
    assert (text, verdict) == ("+71.00 [+55.83, +86.17] (3 seeds)", "holds")
    assert "FedAvg is above: last of accuracy, C1-fedavg above 50" in shown
    assert level(tmp_path, curves, value=60)[0] == (text, "undecided")
    assert level(tmp_path, curves, value=90)[0] == (text, "does not hold")
    (text, verdict), shown = level(tmp_path, curves, value=90, lower=True)
    assert (text, verdict) == ("+71.00 [+55.83, +86.17] (3 seeds)", "holds") and "C1-fedavg below 90" in shown
    assert level(tmp_path, curves[:1])[0] == ("+62.00 (1 seed)", "undecided")
    assert level(tmp_path, [])[0] == ("-", "not run yet")
    with pytest.raises(UserError, match="no such name dice"):
        level(tmp_path, curves, metric="dice")


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", ["dynamic-weights", "fedscrap"])
def test_the_tables_of_personal_models_and_weights_have_valid_settings(name, scale, tmp_path):
    plan = make_benchmark_plan(load_benchmark(name), scale, tmp_path)
    assert {run.row: str(run.error) for row in plan.rows for run in row.runs if run.error} == {}
    assert all(row.passes > 0 for row in plan.rows if row.row.not_yet is None)
    assert all(len(row.runs) == 5 for row in plan.rows if row.row.not_yet is None and row.name[:2] != "S5")
