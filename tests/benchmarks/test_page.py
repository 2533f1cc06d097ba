"""The page from results that were kept as JSON."""

from benchmarks.harness.page import check, number, page, table, target_row
from benchmarks.harness.processes import parse_stat
from benchmarks.harness.results import Entry, Result, load, save
from benchmarks.harness.targets import TARGETS, Target, difference, of
from benchmarks.workloads import WORKLOADS, About, load_workload

ABOUT = About("A title", "A text.", "hand", {"cpu_s": "CPU-s", "loss": "loss"}, ("cpu_s",), "loss", 0.02)


def result(**losses):
    entries = {
        "ours": Entry("Ours", [{"cpu_s": 2.06, "loss": losses.get("ours", 0.5)}, {"cpu_s": 2.1, "loss": 0.5}]),
        "hand": Entry("By hand", [{"cpu_s": 2.0, "loss": 0.5}]),
        "peer": Entry("Peer", fault="cannot be installed: no | here"),
    }
    machine = {"processor": "X", "cores": 2, "memory_gb": 8, "torch": "2", "date": "d", "commit": "c"}
    return Result(entries, {"clients": 10}, machine, 2, False, 61.0)


def test_results_come_back_from_the_file(tmp_path):
    save(tmp_path / "sub" / "r.json", {"w": result()})
    assert load(tmp_path / "sub" / "r.json") == {"w": result()}
    assert load(tmp_path / "none.json") == {}


def test_table_has_medians_ratios_and_the_reason_of_a_missing_peer():
    assert table(ABOUT, result()) == [
        "| | CPU-s | ratio | loss |",
        "|---|---|---|---|",
        "| Ours | 2.08 (2.06 to 2.1) | 1.04 | 0.5 |",
        "| By hand | 2 | 1.00 | 0.5 |",
        "| Peer | cannot be installed: no \\| here | | |",
    ]


def test_unequal_losses_are_named():
    assert check(ABOUT, result()) == ["The loss of all contestants is the same within 2.0%."]
    assert "**The loss differs** by more than 2.0%: Ours by 10.0%." in check(ABOUT, result(ours=0.55))


def test_a_target_is_met_not_met_or_not_measured():
    target = Target("speed", 0.9, of("w", "ours", "hand", "cpu_s"), at_least=True, unit=" x")
    assert target.read({"w": result()}) == 1.04 and target.read({}) is None
    assert target_row(target, 0.9) == "| speed | at least 0.9 x | 0.9 x | **met** |"
    assert target_row(target, 0.89) == "| speed | at least 0.9 x | 0.89 x | **not met** |"
    assert target_row(target, None) == "| speed | at least 0.9 x | | not measured |"
    at_most = Target("cost", 1.03, difference("w", "ours", "hand", "cpu_s"))
    assert round(at_most.read({"w": result()}), 6) == 0.08 and not at_most.met(1.04)


def test_every_target_reads_from_a_workload_that_exists_and_the_page_shows_all():
    abouts = {name: load_workload(name).about(name) for name in WORKLOADS}
    text = page({"pfl-mini": result()}, abouts)
    assert text.count("not measured") == len(TARGETS) and "## pfl-mini" in text and "## Start" not in text
    assert '`make bench ARGS="--only suite"`' in text


def test_a_target_that_is_not_met_says_where_the_time_goes():
    def slow(ours):
        runs = {name: Entry(name, [{"cpu_s": cpu, "wall_s": 1.0}]) for name, cpu in (("ours-1", ours), ("hand-1", 1.0))}
        return {"pfl-mini": Result(runs, {}, result().machine, 1, False, 1.0)}

    over, within = (page(slow(ours), {}) for ours in (1.3, 1.02))
    assert "* **pfl-mini, CPU, 1 worker / hand-written loop.** A client costs" in over
    assert "Where the time goes" not in within


def test_numbers_have_three_digits():
    assert [number(v) for v in (0, 0.0123456, 1.2, 123.456, 4321.9, 0.00001234)] == [
        "0", "0.0123", "1.2", "123", "4,322", "0.0000123"]  # fmt: skip


def test_the_line_of_a_process_whose_name_has_parentheses():
    text = "42 (a) b (c)) S 7 " + " ".join(str(i) for i in range(5, 14)) + " 100 50 25 25 20 0"
    process = parse_stat(text)
    assert (process.pid, process.parent) == (42, 7)
    assert process.seconds > 0
