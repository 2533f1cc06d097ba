"""The fidelity report as Markdown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from importlib import resources
from typing import Any

from flows.papers.fidelity.claims import Claim, compare, figure
from flows.papers.fidelity.evaluate_claims import CONFIDENCE, Verdict
from flows.papers.fidelity.formulas import PrintedAverage
from tasks.core.summary_statistics import mean_and_std
from tasks.core.yaml_text import parse_yaml
from tasks.plotting.markdown import markdown_table

COLUMNS = {"macro_ap": "macro-AP", "cf1": "macro-F1", "micro_ap": "micro-AP", "micro_f1": "micro-F1"}


def choices_table(defaults: Mapping[str, Any]) -> str:
    """What the paper leaves open and what we chose; ``defaults`` are all settings' defaults, nested."""
    text = (resources.files("flows.papers.fidelity") / "fmman.yaml").read_text(encoding="utf-8")
    rows = []
    for entry in parse_yaml(text)["choices"]:
        values = [f"{key} = {_shown(_value_of(defaults, key))}" for key in entry["settings"]]
        rows.append([entry["question"], entry["paper"], entry["chosen"], ", ".join(values) or "not a setting"])
    return markdown_table(["open question", "what the paper says", "what we chose", "default"], rows)


def _value_of(defaults: Mapping[str, Any], key: str) -> Any:
    return reduce(lambda part, name: part[name], key.split("."), defaults)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)


def claims_table(tables: Sequence[Mapping[str, Any]], claims: Sequence[Claim]) -> str:
    """Each claim's verdict by macro-AP over all tables, and per table; points of percent."""
    heads = ["claim", "compared", "all: mean [interval]", "verdict", *(f"{table['table']}" for table in tables)]
    heads += [f"all: {title}" for key, title in COLUMNS.items() if key != "macro_ap"]
    rows = []
    for claim in claims:
        everything = compare(tables, claim, "macro_ap")
        rows.append(
            [
                claim.text,
                f"{claim.winner} - {claim.loser}" + (f" ({claim.note})" if claim.note else ""),
                _interval(everything),
                everything.mark,
                *(_short(compare([table], claim, "macro_ap")) for table in tables),
                *(_brief(compare(tables, claim, key)) for key in COLUMNS if key != "macro_ap"),
            ]
        )
    return markdown_table(heads, rows)


def verdicts(tables: Sequence[Mapping[str, Any]], claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Every claim's verdict by macro-AP over all tables, as plain values; differences are shares, not percent."""
    found = []
    for claim in claims:
        verdict = compare(tables, claim, "macro_ap")
        found.append({"claim": claim.text, "winner": claim.winner, "loser": claim.loser} | asdict(verdict))
    return found


def about_table(table: Mapping[str, Any]) -> str:
    """What the runs of a table are: images, sizes, rounds, seeds."""
    data = table["data"]
    images = ", ".join(f"{count} {split}" for split, count in data["images"].items())
    return (
        f"### {table['table']}\n\n{data['title']}: {images} images of {data['image_size']} pixels, {data['clients']} "
        f"clients ({data['partition']}), R = {table['rounds']}, seeds {', '.join(map(str, table['seeds']))}, data seed "
        f"{data['seed']}. {table['scale_note']} Percent, mean and standard deviation over the seeds."
    )


def _points(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{100 * value:+.2f}"


def _interval(verdict: Verdict) -> str:
    return f"{_points(verdict.mean)} [{_points(verdict.low)}, {_points(verdict.high)}] (n = {len(verdict.differences)})"


def _short(verdict: Verdict) -> str:
    if not verdict.differences:
        return "not run"
    each = ", ".join(_points(d) for d in verdict.differences)
    return f"{_points(verdict.mean)} ({verdict.mark}; {each})"


def _brief(verdict: Verdict) -> str:
    return f"{_points(verdict.mean)} ({verdict.mark})"


def results_table(table: Mapping[str, Any]) -> str:
    """Mean and standard deviation over the seeds of every row, percent, at equal local epochs."""
    rows = []
    for row in table["rows"]:
        cells = [_mean_and_std([100 * figure(run, key) for run in row["runs"]]) for key in COLUMNS]
        rows.append([row["name"], *cells, str(len(row["runs"])), row["failed"] or ""])
    return markdown_table(["row", *COLUMNS.values(), "seeds", "failed"], rows)


def _mean_and_std(values: Sequence[float]) -> str:
    mean, std = mean_and_std(values)
    if math.isnan(mean):
        return "n/a"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} +/- {std:.2f}"


def average_text(found: Mapping[str, PrintedAverage]) -> str:
    """Eq 15 as printed, run by run."""
    rows = [
        [
            name,
            str(measured.clients),
            f"{min(measured.sums):.4f} to {max(measured.sums):.4f}",
            *(f"{100 * m.get(key, math.nan):.2f}" for key in ("macro_ap", "micro_f1") for m in _both(measured)),
        ]
        for name, measured in found.items()
    ]
    heads = ["run", "clients", "printed weights sum to", "macro-AP, normalised", "macro-AP, as printed"]
    return markdown_table([*heads, "micro-F1, normalised", "micro-F1, as printed"], rows)


def _both(measured: PrintedAverage) -> tuple[dict[str, float], dict[str, float]]:
    return measured.metrics, measured.printed


def contrast_text(found: Mapping[str, Mapping[int, tuple[float, float]]], clusters: Mapping[str, int]) -> str:
    """The contrast of eq 11 by stage, run by run."""
    rows = [
        [name, str(stage), f"{low:.6f}", f"{high:.6f}", f"{clusters[name] * math.log(clusters[name]):.6f}"]
        for name, stages in found.items()
        for stage, (low, high) in stages.items()
    ]
    return markdown_table(["run", "stage", "least", "largest", "K ln K"], rows)


ABOUT_CLAIMS = f"""\
A difference is winner minus loser in points of percent, for the same seed and data (paired). The interval is Student's,
{CONFIDENCE:.0%}, over the pairs. **holds**: the interval lies above 0; **does not hold**: below 0; **undecided**:
neither. Single-stage rows are taken after 2R rounds, so that all have trained for equally many local epochs. With few
seeds, few rounds and narrow networks an undecided claim says that our runs cannot tell, not that the paper is wrong;
the comparisons are many and not corrected for that. The pairs of one data set share its test images, so the interval
says how far the seed matters, not other images.

A verdict is about these runs: random start weights, label embeddings from spelling where the paper has CLIP, sites of
about a hundred drawn images, and as few epochs as stand below. The readings that should train more steadily (preset
`robust`, [FMMAN](fmman.md)) are the row FMMAN_robust of table 5."""

ABOUT_AVERAGE = """\
Eq 15 is printed as a product of two shares, the client's of the summed loss and its of the images. Such weights sum to
about 1/N, not to 1, and the average of the models shrinks towards zero. Measured: what the printed weights sum to over
the rounds of a run, and the metrics of its last average with them, beside those with the weights normalised."""


def cosine_text(found: Mapping[str, tuple[float, float]]) -> str:
    """How alike the labels' features F are, run by run."""
    rows = [[name, f"{first:.3f}", f"{last:.3f}"] for name, (first, last) in found.items()]
    return markdown_table(["run", "first training", "last training"], rows)


ABOUT_COSINE = """\
The adjacency is dense, so the encoder (eqs 5 to 7) could make all label features alike. Measured: the mean cosine of
every pair of them without eq 7's noise, as the network is used at test, over the clients of the first and of the last
training (1 would be a collapse). With the noise, which is as large as the mean, cosines are about half as large."""

ABOUT_CONTRAST = """\
In stage 1 a client's K prototypes are equal multiplicity of the global model. The contrast is then the constant K ln K
whatever the client does, and its gradient is zero: it cannot teach anything before stage 3. There, its least value
is K ln K again, reached where all cosines are equal: as printed it balances the prototypes and pulls to none."""
