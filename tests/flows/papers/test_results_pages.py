"""The pages of results in the documentation are what their records and the files of the benchmarks give."""

from flows.papers.benchmark.page import page
from flows.papers.benchmark.results import BenchmarkReport, CellRow, read_record
from flows.papers.benchmark.schema import load_benchmark
from tests.support.projects import ROOT

RESULTS = ROOT / "docs" / "results"


def test_the_page_of_classics_fits_its_record_and_its_file():
    benchmark = load_benchmark("classics")
    record = read_record(RESULTS / "classics.json", "classics", "full")
    rows = {name: CellRow(name, record.get(name, [])) for name in benchmark.rows}
    drawn = {"By round": RESULTS / "classics-rounds.png", "Clients": RESULTS / "classics-clients.png"}
    plots = {title: path for title, path in drawn.items() if path.is_file()}
    made = page(BenchmarkReport(benchmark, "full", rows), plots)
    text = (RESULTS / "classics.md").read_text(encoding="utf-8")
    assert made == text, "fedscene replicate classics --scale full --show --out docs/results"
