"""The reproduction report of FMMAN as Markdown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from importlib import resources
from typing import Any

from flows.papers.fidelity.claims import Claim, compare
from flows.papers.fidelity.evaluate_claims import CONFIDENCE, Verdict
from flows.papers.fidelity.formulas import PrintedAverage
from flows.papers.replicate.results import RowResult, TableReport
from tasks.core.summary_statistics import mean_and_std
from tasks.core.yaml_text import parse_yaml
from tasks.plotting.markdown import markdown_table, safe_cell

MAIN_METRIC = "macro_ap"  # verdicts are by this one
OTHER_METRICS = {"cf1": "macro-F1", "micro_ap": "micro-AP", "micro_f1": "micro-F1"}
METRICS = {MAIN_METRIC: "macro-AP"} | OTHER_METRICS


def choices_table(defaults: Mapping[str, Any]) -> str:
    """Return what the paper leaves open and what we chose; ``defaults`` are all settings' defaults, nested."""
    text = (resources.files("flows.papers.fidelity") / "fmman.yaml").read_text(encoding="utf-8")
    rows = []
    for entry in parse_yaml(text)["choices"]:
        values = [f"{key} = {_value_text(_value_of(defaults, key))}" for key in entry["settings"]]
        rows.append([entry["question"], entry["paper"], entry["chosen"], ", ".join(values) or "not a setting"])
    return markdown_table(["open question", "what the paper says", "what we chose", "default"], rows)


def _value_of(defaults: Mapping[str, Any], key: str) -> Any:
    return reduce(lambda part, name: part[name], key.split("."), defaults)


def _value_text(value: object) -> str:
    return "unset" if value is None else str(value)


def verdict_table(tables: Sequence[TableReport], claims: Sequence[Claim]) -> str:
    """Return each claim's verdict by macro-AP over all tables, in percentage points, and notes on the comparisons."""
    rows = []
    for claim in claims:
        verdict = compare(tables, claim, MAIN_METRIC)
        rows.append([claim.text, _compared(claim), _interval(verdict), str(len(verdict.differences)), verdict.outcome])
    table = markdown_table(["claim", "compared", "difference [interval]", "pairs", "verdict"], rows)
    notes = [f"- {safe_cell(_compared(claim))}: {safe_cell(claim.note)}." for claim in claims if claim.note]
    return "\n\n".join([table, "\n".join(notes)] if notes else [table])


def table_differences(tables: Sequence[TableReport], claims: Sequence[Claim]) -> str:
    """Return each claim's differences in macro-AP table by table and seed by seed, in percentage points."""
    rows = []
    for claim in claims:
        for table in tables:
            verdict = compare([table], claim, MAIN_METRIC)
            if verdict.differences:
                each = ", ".join(_points(difference) for difference in verdict.differences)
                rows.append([_compared(claim), table.table, _points(verdict.mean), verdict.outcome, each])
    return markdown_table(["compared", "table", "difference", "verdict", "by seed"], rows)


def other_metrics(tables: Sequence[TableReport], claims: Sequence[Claim]) -> str:
    """Return each claim's verdict by the other metrics over all tables, in percentage points."""
    rows = []
    for claim in claims:
        verdicts = [compare(tables, claim, metric) for metric in OTHER_METRICS]
        rows.append([_compared(claim), *(f"{_points(verdict.mean)} ({verdict.outcome})" for verdict in verdicts)])
    return markdown_table(["compared", *OTHER_METRICS.values()], rows)


def verdicts(tables: Sequence[TableReport], claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return every claim's verdict by macro-AP over all tables as plain values; differences are fractions."""
    found = []
    for claim in claims:
        verdict = compare(tables, claim, MAIN_METRIC)
        found.append({"claim": claim.text, "winner": claim.winner, "loser": claim.loser} | asdict(verdict))
    return found


def about_table(table: TableReport) -> str:
    """Return what the runs of a table are: images, sizes, rounds, seeds."""
    data = table.data
    images = ", ".join(f"{count} {split}" for split, count in data.images.items())
    return (
        f"### {table.table}\n\n{data.title}: {images} images of {data.image_size} pixels, {data.clients} "
        f"clients ({data.partition}), R = {table.rounds}, seeds {', '.join(map(str, table.seeds))}, data seed "
        f"{data.seed}. {table.scale_note} Percent, mean and standard deviation over the seeds."
    )


def _compared(claim: Claim) -> str:
    return f"{claim.winner} - {claim.loser}"


def _points(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{100 * value:+.2f}"


def _interval(verdict: Verdict) -> str:
    return f"{_points(verdict.mean)} [{_points(verdict.low)}, {_points(verdict.high)}]"


def results_table(table: TableReport) -> str:
    """Return mean and standard deviation over the seeds of every row, percent, at equal local epochs."""
    rows = [
        [row.name, *(_percent(row, metric) for metric in METRICS), str(len(row.runs)), row.failed or ""]
        for row in table.rows
    ]
    return markdown_table(["row", *METRICS.values(), "seeds", "failed"], rows)


def _percent(row: RowResult, metric: str) -> str:
    values = [100 * run.at("epochs").value(metric) for run in row.runs]
    mean, std = mean_and_std(values)
    if math.isnan(mean):
        return "n/a"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} +/- {std:.2f}"


def average_text(found: Mapping[str, PrintedAverage]) -> str:
    """Return eq 15 as printed, run by run."""
    rows = [
        [
            name,
            str(measured.clients),
            f"{min(measured.sums):.4f} to {max(measured.sums):.4f}",
            *(
                f"{100 * metrics.get(key, math.nan):.2f}"
                for key in ("macro_ap", "micro_f1")
                for metrics in (measured.metrics, measured.printed)
            ),
        ]
        for name, measured in found.items()
    ]
    heads = ["run", "clients", "sum of printed weights", "macro-AP, normalised", "macro-AP, as printed"]
    return markdown_table([*heads, "micro-F1, normalised", "micro-F1, as printed"], rows)


def contrast_text(found: Mapping[str, Mapping[int, tuple[float, float]]], clusters: Mapping[str, int]) -> str:
    """Return the contrastive term of eq 11 by stage, run by run."""
    rows = [
        [name, str(stage), f"{low:.6f}", f"{high:.6f}", f"{clusters[name] * math.log(clusters[name]):.6f}"]
        for name, stages in found.items()
        for stage, (low, high) in stages.items()
    ]
    return markdown_table(["run", "stage", "smallest", "largest", "K ln K"], rows)


def cosine_text(found: Mapping[str, tuple[float, float]]) -> str:
    """Return the mean cosine of the label features F, run by run."""
    rows = [[name, f"{first:.3f}", f"{last:.3f}"] for name, (first, last) in found.items()]
    return markdown_table(["run", "first training", "last training"], rows)


ABOUT_CLAIMS = f"""\
A difference is winner minus loser in percentage points of macro-AP, for the same seed and data (paired). The
interval is Student's, {CONFIDENCE:.0%}, over the pairs. **holds**: the interval is above 0; **does not hold**: below
0; **undecided**: neither. Rows that train clients once a round are compared after 2R rounds, so that all rows have
trained for equally many local epochs. With few seeds, few rounds and narrow networks an undecided claim means that
these runs cannot tell, not that the paper is wrong; the comparisons are many and not corrected for that. The pairs
of one data set share its test images, so the interval covers the seed, not other images.

A verdict is about these runs: random initial weights, label embeddings from spelling where the paper has CLIP, sites
of about a hundred synthetic images, and few epochs. The interpretations that should train more steadily (preset
`robust`, [FMMAN](fmman.md)) are the row FMMAN_robust of table 5."""

ABOUT_AVERAGE = """\
Eq 15 prints a product of two shares: the client's share of the summed loss and its share of the images. Such weights
sum to about 1/N, not to 1, and the average of the models shrinks towards zero. The table shows the sum of the
printed weights over the rounds of a run, and the metrics of its last average with normalised and with printed
weights."""

ABOUT_COSINE = """\
The adjacency is dense, so the encoder (eqs 5 to 7) could make all label features alike. The table shows the mean
cosine of every pair of them without eq 7's noise, as the network is used at test, over the clients of the first and
of the last training (1 would be a collapse). With the noise, which is as large as the mean, cosines are about half
as large."""

ABOUT_CONTRAST = """\
In stage 1 a client's K prototypes are equal copies of the global model. The contrastive term is then the constant K
ln K whatever the client does, and its gradient is zero: it has no effect before stage 3. There, its smallest value
is K ln K again, reached where all cosines are equal: as printed it balances the prototypes and attracts to none."""
