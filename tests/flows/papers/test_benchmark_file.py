"""Benchmark files: what is shipped, how settings are merged, what is refused."""

import copy
import math
from dataclasses import replace

import pytest

from flows.papers.benchmark.bands import CLAIM
from flows.papers.benchmark.cell_run import CellRun
from flows.papers.benchmark.page import page
from flows.papers.benchmark.plan import find_images, make_benchmark_plan, training_passes
from flows.papers.benchmark.results import BenchmarkReport, CellRow, newest, read_record
from flows.papers.benchmark.run import row_states
from flows.papers.benchmark.schema import Difference, Images, is_benchmark, load_benchmark
from models.errors import UserError
from tests.support.benchmark import BENCHMARK, written


def run(seed, curve, of=3, code="commit 0123456789ab, sources"):
    return CellRun(seed, f"run-{seed}", code, of, list(curve), 2.0 * len(curve))


def report(folder, **runs):
    """A report of the small benchmark with runs, by method."""
    benchmark = load_benchmark(written(folder))
    found = BenchmarkReport(benchmark, "full", {name: CellRow(name) for name in benchmark.rows})
    for method, given in runs.items():
        found.rows[f"C1-{method}"].runs = given
    return found


def changed(path, value):
    """The small benchmark with one entry replaced."""
    values = copy.deepcopy(BENCHMARK)
    *parents, last = path
    place = values
    for key in parents:
        place = place[key]
    place[last] = value
    return values


def test_classics_has_the_published_cells_and_every_row_names_its_source():
    classics = load_benchmark("classics")
    assert is_benchmark("classics") and not is_benchmark("fmman-table1")
    assert list(classics.cells) == [f"K{number}" for number in range(1, 12)]
    assert {row.cell for row in classics.rows.values()} == set(classics.cells)
    assert all(source.where for source in classics.sources.values())
    assert all(row.published or row.cell == "K11" for row in classics.rows.values())
    assert {name for name, row in classics.rows.items() if row.not_yet} >= {"K10-client", "K10-server"}
    # Bands as the rule gives them: pooled, single
    assert sorted(classics.band_values("K2-fednova")) == [88.1, 88.4, 88.6]
    assert classics.band_values("K4-fedavg") == [85.85]
    assert classics.band_values("K4-fedrep") == [97.47, 97.44, 97.2, 97.56]
    assert classics.band_values("K5-ditto") == [99.44, 99.47, 99.42, 99.56]
    assert classics.band_values("K9-scaffold") == []  # a fault is no target; the row has a floor
    for claim in classics.claims:
        assert not isinstance(claim, Difference) or classics.margin(claim) > CLAIM


def test_classics_runs_the_protocols_of_its_sources():
    plan = make_benchmark_plan(load_benchmark("classics"), "full", None)
    found = {row.name: row for row in plan.rows}
    dirichlet = found["K2-fedavg"].runs[0].settings
    assert (dirichlet.partition.scheme, dirichlet.partition.alpha, dirichlet.partition.clients) == (
        "dirichlet_label",
        0.5,
        10,
    )
    assert dirichlet.partition.dirichlet_label.balance and dirichlet.partition.min_size == 10
    train = dirichlet.train
    assert (train.optimizer, train.lr, train.momentum, train.weight_decay) == ("sgd", 0.01, 0.9, 1e-5)
    assert (train.batch_size, train.epochs, train.grad_clip, train.flip, train.shift) == (64, 10, None, False, 0)
    assert (dirichlet.model.name, dirichlet.model.channels, dirichlet.model.inputs.normalisation) == (
        "simple_cnn",
        1,
        "none",
    )
    assert dirichlet.federation.rounds == 50 and dirichlet.ingest.image_size == 28
    assert [run.seed for run in found["K2-fedavg"].runs] == [0, 1, 2]
    assert found["K2-fedavg"].passes == 3 * 50 * 60_000 * 10
    practical = found["K4-fedavg"].runs[0].settings
    assert (practical.train.batch_size, practical.train.lr, practical.train.epochs) == (10, 0.005, 1)
    assert (practical.partition.images, practical.partition.local.scheme, practical.partition.local.test) == (
        "all",
        "local",
        0.25,
    )
    assert found["K4-fedavg"].passes == 3 * 2000 * 52_500
    assert {row.runs[0].settings.method.name for row in plan.rows if row.name.startswith("K3-c2")} == {
        "fedavg",
        "fednova",
        "scaffold",
    }


def test_personal_methods_run_as_pfllib_does_and_are_tested_on_their_own_images():
    plan = make_benchmark_plan(load_benchmark("classics"), "full", None)
    rows = {row.name: row for row in plan.rows if row.row.protocol == "pfllib-fmnist-own"}
    assert {name for name in rows if rows[name].row.not_yet is None} >= {
        f"{cell}-{method}" for cell in ("K4", "K5") for method in ("ditto", "fedper", "fedamp", "fedrep")
    }
    shared = next(row for row in plan.rows if row.name == "K4-fedavg").runs[0].settings
    for name, row in rows.items():
        for run in row.runs:
            ours = run.settings
            assert (ours.train, ours.model, ours.federation.clients_per_round) == (shared.train, shared.model, None)
            assert list(ours.evaluation.protocols) == ["local"] and ours.method.name == name.partition("-")[2]
            assert ours.partition.local == shared.partition.local
    heads = {name: rows[name].runs[0].settings.method.chosen.personal for name in ("K4-fedper", "K5-fedrep")}
    assert set(heads.values()) == {("readout.",)}


@pytest.mark.parametrize("scale", ["small", "full"])
def test_every_row_of_classics_that_can_be_run_has_valid_settings(scale):
    plan = make_benchmark_plan(load_benchmark("classics"), scale, None)
    assert {run.row: str(run.error) for row in plan.rows for run in row.runs if run.error} == {}
    assert all(row.passes > 0 for row in plan.rows if row.row.not_yet is None)
    if scale == "small":  # a check of minutes
        assert all(row.passes <= 20_000 for row in plan.rows)


def test_layers_and_seeds(tmp_path):
    benchmark = load_benchmark(written(tmp_path))
    plan = make_benchmark_plan(benchmark, "full", None, ["C1-fedprox"], ["train.lr=0.5", "federation.rounds=2"], [4, 5])
    assert [(row.name, job.seed) for row, job in plan.to_do()] == [("C1-fedprox", 4), ("C1-fedprox", 5)]
    settings = plan.row("C1-fedprox").runs[1].settings
    assert (settings.seed, settings.federation.rounds, settings.train.lr, settings.method.name) == (
        5,
        2,
        0.5,
        "fedprox",
    )
    first, second = make_benchmark_plan(benchmark, "full", None).to_do()[:2]
    assert [job.seed for _, job in (first, second)] == [0, 0]  # the first seed of every row before any second one
    small = make_benchmark_plan(benchmark, "small", None)
    assert [job.rounds for _, job in small.to_do()] == [1, 1]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("rows", "C1-fedavg", "cell"), "C9", "no such name C9"),
        (("rows", "C1-fedavg", "protocol"), "none", "no such name none"),
        (("rows", "C1-fedavg", "published"), [{"value": 60, "source": "nobody"}], "nobody"),
        (("protocols", "plain", "images"), "none", "no such name none"),
        (("rows", "C1-fedavg", "published"), [{"value": 51.5, "source": "a"}], "smallest published one is 1.50"),
        (("rows", "C1-fedavg", "published"), [{"value": 60, "source": "b"}], "no source has both"),
        (("claims", 0, "better"), "nobody", "nobody"),
        (("titel",), "x", "titel"),
    ],
)
def test_a_faulty_file_is_named(tmp_path, path, value, said):
    with pytest.raises(UserError, match=said):
        load_benchmark(written(tmp_path, **changed(path, value)))


def test_rows_scales_and_overrides_that_cannot_be_run_are_refused(tmp_path):
    benchmark = load_benchmark(written(tmp_path))
    for scale, rows, overrides, said in (
        ("huge", (), (), "no such scale"),
        ("full", ["Nobody"], (), "no such row"),
        ("full", ["C2-ditto"], (), "cannot be run yet"),
        ("full", (), ["seed=3"], "--seeds"),
    ):
        with pytest.raises(UserError, match=said):
            make_benchmark_plan(benchmark, scale, None, rows, overrides)


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_that_are_none_are_refused_and_not_taken_for_the_protocols(tmp_path, rounds):
    plan = make_benchmark_plan(
        load_benchmark(written(tmp_path)), "full", None, ["C1-fedavg"], [f"federation.rounds={rounds}"]
    )
    states = [state for state in row_states(plan) if state.row == "C1-fedavg"]
    assert all("federation.rounds" in state.problem for state in states)


def test_overrides_that_change_a_result_are_a_deviation(tmp_path):
    benchmark = load_benchmark(written(tmp_path))
    neutral = ["federation.rounds=2", "federation.workers=2", "tracking.enabled=false"]
    assert make_benchmark_plan(benchmark, "full", None, (), neutral).changed == ""
    changed = make_benchmark_plan(
        benchmark, "full", None, (), [*neutral, "train.lr=0.5", "federation.clients_per_round=2"]
    )
    assert changed.changed == "federation.clients_per_round=2, train.lr=0.5"


def test_images_are_found_below_data_then_where_packages_install_them_then_named(tmp_path):
    def variant(name, usual=()):
        needs = {"folder": name, "origin": f"the package {name}"}
        return {"needs": needs, "usual": list(usual), "settings": {}, "deviation": name}

    usual = tmp_path / "installed"
    values = {"title": "pictures", "train": 1, "test": 1, "variants": [variant("raw", [str(usual)]), variant("jpeg")]}
    images = Images.model_validate(values)
    with pytest.raises(UserError, match=r"pictures[\s\S]*raw or jpeg[\s\S]*the package raw; or the package jpeg"):
        find_images(images, tmp_path)
    (tmp_path / "jpeg").mkdir()
    assert find_images(images, tmp_path)[1] == tmp_path / "jpeg"
    usual.mkdir()
    assert find_images(images, tmp_path)[1] == usual
    (tmp_path / "raw").mkdir()
    found, folder = find_images(images, tmp_path)
    assert folder == tmp_path / "raw" and found.deviation == "raw"
    synthetic = images.model_copy(update={"variants": []})
    assert find_images(synthetic, None) == (None, None)


def test_passes_count_participants_epochs_and_pooled_images(tmp_path):
    plan = make_benchmark_plan(load_benchmark(written(tmp_path)), "full", None)
    settings, images = plan.rows[0].runs[0].settings, plan.benchmark.images["scrap"]
    assert training_passes(settings, images) == 3 * 42
    half = settings.federation.model_copy(update={"clients_per_round": 1})
    assert training_passes(settings.model_copy(update={"federation": half}), images) == 3 * 14
    local = settings.partition.local.model_copy(update={"scheme": "local", "test": 0.25})
    pooled = settings.partition.model_copy(update={"images": "all", "local": local})
    assert training_passes(settings.model_copy(update={"partition": pooled}), images) == round(3 * 54 * 0.75)


def test_verdicts_of_levels(tmp_path):
    assert report(tmp_path).verdict("C1-fedavg") == "not run yet"
    assert report(tmp_path).verdict("C2-ditto") == "not yet available"
    assert report(tmp_path, fedavg=[run(0, [50, 58])]).verdict("C1-fedavg") == "2 of 3 rounds run"
    inside = report(tmp_path, fedavg=[run(0, [1, 2, 60.9])])
    assert inside.verdict("C1-fedavg") == "inside" and inside.band("C1-fedavg") == (54, 61)
    spread = report(tmp_path, fedavg=[run(0, [1, 2, 61]), run(1, [1, 2, 65])])  # std 2.83, so t = 5.66
    assert spread.verdict("C1-fedavg") == "inside"
    assert report(tmp_path, fedavg=[run(0, [1, 2, 50.5])]).verdict("C1-fedavg") == "outside by 3.50"
    single = report(tmp_path, fedprox=[run(0, [1, 2, 52.5])])  # the fault 10 widens nothing
    assert single.band("C1-fedprox") == (47.5, 52.5) and single.verdict("C1-fedprox") == "inside"
    inside.scale = "small"
    assert inside.verdict("C1-fedavg") == "ran"  # a check of minutes is not judged
    failed = report(tmp_path)
    failed.rows["C1-fedavg"].failed = "no\nimages"
    assert failed.verdict("C1-fedavg") == "failed: no images"


def test_the_best_round_counts_where_the_protocol_says_so(tmp_path):
    found = report(tmp_path, fedavg=[run(0, [40, 59, 50])])
    assert found.figure("C1-fedavg") == (50, None)
    protocol = found.benchmark.protocols["plain"].model_copy(update={"pick": "best"})
    found.benchmark = found.benchmark.model_copy(update={"protocols": {"plain": protocol}})
    assert found.figure("C1-fedavg") == (59, None)


def test_verdicts_of_claims(tmp_path):
    none = report(tmp_path, fedavg=[run(0, [1, 2, 60])], fedprox=[run(1, [1, 2, 50])])
    difference, waiting, rounds = none.benchmark.claims
    assert none.claim(difference) == ("-", "not run yet")  # no seed in common
    assert none.claim(waiting) == ("-", "not yet available")
    both = report(
        tmp_path, fedavg=[run(0, [1, 2, 60]), run(1, [1, 2, 56])], fedprox=[run(0, [1, 2, 58]), run(1, [1, 2, 56])]
    )
    assert both.claim(difference) == ("+1.00 +/- 1.41 (2 seeds)", "holds")
    less = report(tmp_path, fedavg=[run(0, [1, 2, 60])], fedprox=[run(0, [1, 2, 59.5])])
    assert less.claim(difference) == ("+0.50 (1 seed)", "does not hold")
    # The slower row has 40 after round 2, which the faster one reaches in round 1
    fast = report(tmp_path, fedavg=[run(0, [30, 40, 50])], fedprox=[run(0, [45, math.nan, 50])])
    assert fast.claim(rounds) == ("1 against 2 rounds, ratio 0.50 (1 seeds)", "holds")
    late = report(tmp_path, fedavg=[run(0, [math.nan, math.nan, 50])], fedprox=[run(0, [45, 46, 50])])
    assert late.claim(rounds) == ("-", "not evaluated up to round 2")
    never = report(tmp_path, fedavg=[run(0, [30, 40, 50])], fedprox=[run(0, [1, 2, 3])])
    assert never.claim(rounds)[1] == "does not hold"


def test_the_page_says_what_was_run_by_which_commit_and_what_was_not(tmp_path):
    text = page(report(tmp_path, fedavg=[replace(run(0, [1, 2, 60.9]), images="other pixels")]))
    line = next(line for line in text.splitlines() if line.startswith("| C1-fedavg "))
    cells = [cell.strip() for cell in line.split("|")][1:-1]
    assert cells == [
        "C1-fedavg", "FedAvg", "60.00 (a); 55.00 +/- 1.00 (b)", "54.0 to 61.0", "60.90 (1 seed)", "inside",
        "commit 0123456789ab",
    ]  # fmt: skip
    assert "not run yet" in text and "C2-ditto: not yet available: later" in text
    assert "C1-fedprox: 10 (b): diverged" in text and "C1-fedavg: other pixels" in text
    assert "| run-0 |" in text and "somewhere/README.md" in text
    partial = page(report(tmp_path, fedavg=[run(0, [1, 57.25])]))
    assert "(57.25)" in partial and "2 of 3 rounds run" in partial


def test_records_are_read_and_the_longer_run_of_a_seed_counts(tmp_path):
    here, old = run(1, [1, 2], code="new"), run(1, [1, 2, 3], code="old")
    assert newest([here], [old, run(0, [1])]) == [run(0, [1]), old]
    assert newest([replace(old, code="new")], [old]) == [replace(old, code="new")]
    assert read_record(tmp_path / "none.json", "cells", "full") == {}
    (tmp_path / "bad.json").write_text('{"benchmark": "cells", "scale": "full", "rows": 3}')
    with pytest.raises(UserError, match="record of earlier runs"):
        read_record(tmp_path / "bad.json", "cells", "full")
    (tmp_path / "small.json").write_text('{"benchmark": "cells", "scale": "small", "rows": {}}')
    with pytest.raises(UserError, match="the record is of other runs"):
        read_record(tmp_path / "small.json", "cells", "full")
