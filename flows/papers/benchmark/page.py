"""The page of a benchmark: published values, bands, our figures with the commit that made them, and the claims."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from flows.papers.benchmark.bands import CLAIM, LEAST, SINGLE
from flows.papers.benchmark.cell_run import CellRun
from flows.papers.benchmark.results import BenchmarkReport, one_line
from flows.papers.benchmark.schema import Difference, Level, Paired
from flows.settings.dotted import flat
from tasks.plotting.markdown import markdown_table, safe_cell

NONE = "-"
HEADS = ("row", "what", "published", "band", "ours", "verdict", "run by")


def page(report: BenchmarkReport, plots: Mapping[str, Path] | None = None) -> str:
    """Return the page as Markdown; ``plots`` are title -> PNG file in the page's folder."""
    benchmark = report.benchmark
    parts = [
        f"# {benchmark.title}",
        f"Written by `fedscene replicate {benchmark.name} --scale {report.scale}`; do not edit it by hand. "
        + one_line(benchmark.about),
        _how_to_read(report),
        "## Rows",
        *(part for cell in benchmark.cells for part in _cell(report, cell)),
        "## Claims",
        f"A difference between two rows is a claim only where the published one exceeds {CLAIM:g} points in every "
        "source that has both rows. A claim on our own images is judged by the 90 % interval, in brackets, of the mean "
        "(or mean difference) over the seeds.",
        _claims(report),
        "\n\n".join(f"![{title}]({path.name})" for title, path in (plots or {}).items()),
        _runs(report),
        _faults(report),
        _protocols(report),
        _settings(report),
        _sources(report),
        _notes(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _how_to_read(report: BenchmarkReport) -> str:
    small = (
        "**At scale small the runs are a check of minutes: figures have nothing to do with the bands.** "
        if report.scale == "small" and any(row.targets for row in report.benchmark.rows.values())
        else ""
    )
    return (
        f"{small}Percent. **published**: the values of all sources, with their printed deviation. **band**: [min - t, "
        f"max + t] of them; t = {SINGLE:g} around a single value, else the larger of {LEAST:.1f} and twice our own "
        "standard deviation over the seeds. Pooled rows of a cell, which lie within the noise of one another, share a "
        "band around all their values. **ours**: mean +/- standard deviation over the seeds; in brackets what an "
        "unfinished run has reached."
    )


def _cell(report: BenchmarkReport, cell: str) -> list[str]:
    benchmark = report.benchmark
    rows = {name: row for name, row in benchmark.rows.items() if row.cell == cell}
    table = [row_cells(report, name) for name in rows]
    waiting = {name: row.not_yet for name, row in rows.items() if row.not_yet is not None}
    lines = "\n".join(f"- {safe_cell(name)}: not yet available: {one_line(why)}" for name, why in waiting.items())
    return [f"### {cell}: {one_line(benchmark.cells[cell])}", markdown_table(HEADS, table), _also(report, rows), lines]


def _also(report: BenchmarkReport, rows: Iterable[str]) -> str:
    """Return the further metrics of a cell's rows: mean +/- standard deviation over the seeds after the last round."""
    benchmark = report.benchmark
    named = {name: benchmark.protocols[benchmark.rows[name].protocol].also for name in rows}
    heads = list(dict.fromkeys(metric for also in named.values() for metric in also))
    table = [[name, *(_figure(report.also(name, head)) for head in heads)] for name in named if report.finished(name)]
    return markdown_table(["row", *heads], table) if heads and table else ""


def _figure(figure: tuple[float, float | None]) -> str:
    mean, std = figure
    return f"{mean:.2f}{'' if std is None else f' +/- {std:.2f}'}" if math.isfinite(mean) else NONE


def row_cells(report: BenchmarkReport, name: str) -> list[str]:
    """Return a row's cells under ``HEADS``."""
    published, ours = _published(report, name), _ours(report, name)
    title = report.benchmark.rows[name].title
    return [name, title, published, _band(report, name), ours, report.verdict(name), _code(report, name)]


def _published(report: BenchmarkReport, name: str) -> str:
    entries = report.benchmark.rows[name].published
    texts = [
        f"{entry.value:.2f}{f' +/- {entry.std:.2f}' if entry.std is not None else ''} ({entry.source})"
        f"{' [fault]' if entry.fault else ''}"
        for entry in entries
    ]
    return "; ".join(texts) or report.benchmark.rows[name].printed or NONE


def _band(report: BenchmarkReport, name: str) -> str:
    floor = report.benchmark.rows[name].floor
    if floor is not None:
        return f"> {floor.above:g}"
    bounds = report.band(name)
    return NONE if bounds is None else f"{bounds[0]:.1f} to {bounds[1]:.1f}"


def _ours(report: BenchmarkReport, name: str) -> str:
    mean, std = report.figure(name)
    if math.isfinite(mean):
        count = len(report.finished(name))
        spread = "" if std is None else f" +/- {std:.2f}"
        return f"{mean:.2f}{spread} ({count} seed{'s' if count > 1 else ''})"
    partial = max(report.rows[name].runs, key=lambda run: len(run.curve), default=None)
    return NONE if partial is None else f"({partial.value(report.pick(name)):.2f})"


def _code(report: BenchmarkReport, name: str) -> str:
    runs = report.finished(name) or report.rows[name].runs
    return "; ".join(dict.fromkeys(run.code.split(",")[0] for run in runs)) or NONE


def _claims(report: BenchmarkReport) -> str:
    rows = []
    for claim in report.benchmark.claims:
        measured, verdict = report.claim(claim)
        if isinstance(claim, Difference):
            text, published = f"{claim.better} - {claim.worse} >= {claim.at_least:g}", report.benchmark.margin(claim)
            printed = NONE if published is None else f"{published:+.2f}"
        elif isinstance(claim, Paired | Level):
            text, printed = _ordering(report, claim), NONE
        else:
            text = f"rounds of {claim.faster} <= {claim.at_most:g} x those of {claim.slower}, to what {claim.slower} "
            text += f"has after round {claim.target_round}"
            printed = claim.note or NONE
        rows.append([claim.cell, text, printed, measured, verdict])
    return markdown_table(["cell", "claim", "smallest published margin", "ours", "verdict"], rows)


def _ordering(report: BenchmarkReport, claim: Paired | Level) -> str:
    """Return a claim on our own images in words, with the numbers that are compared."""
    metric = claim.metric or report.benchmark.protocols[report.benchmark.rows[claim.rows[0]].protocol].metric
    if isinstance(claim, Level):
        order = "below" if claim.lower else "above"
        return f"{claim.text}: {claim.statistic} of {metric}, {claim.row} {order} {claim.value:g}"
    order = "equal to" if claim.equal else "below" if claim.lower else "above"
    margin = f" less {claim.margin:g}" if claim.margin else ""
    return f"{claim.text}: {claim.statistic} of {metric}, {claim.better} {order} {claim.worse}{margin}"


def _runs(report: BenchmarkReport) -> str:
    rows = [
        [name, str(run.seed), f"{len(run.curve)} of {run.of}", f"{run.value('last'):.2f}", f"{run.value('best'):.2f}",
         _seconds(run), run.run_id, run.code]
        for name, row in report.rows.items()
        for run in row.runs
    ]  # fmt: skip
    if not rows:
        return ""
    heads = ["row", "seed", "rounds", "last", "best", "seconds a round", "run", "code"]
    return f"## Runs\n\n{markdown_table(heads, rows)}"


def _seconds(run: CellRun) -> str:
    return f"{run.seconds / len(run.curve):.1f}" if run.curve else NONE


def _faults(report: BenchmarkReport) -> str:
    lines = [
        f"- {safe_cell(name)}: {entry.value:g} ({entry.source}): {one_line(entry.fault)}"
        for name, row in report.benchmark.rows.items()
        for entry in row.published
        if entry.fault
    ]
    lines += [
        f"- {safe_cell(name)}: must be above {row.floor.above:g}: {one_line(row.floor.reason)}"
        for name, row in report.benchmark.rows.items()
        if row.floor
    ]
    intro = "Published values that are bugs or divergence. A right implementation beats them."
    return f"## Published faults\n\n{intro}\n\n" + "\n".join(lines) if lines else ""


def _protocols(report: BenchmarkReport) -> str:
    benchmark, parts = report.benchmark, ["## Protocols"]
    for name, protocol in benchmark.protocols.items():
        images = benchmark.images[protocol.images]
        picked = "the best round counts" if protocol.pick == "best" else "the last round counts"
        parts.append(
            f"**{name}**: {images.title}. {one_line(protocol.about)} {protocol.rounds} rounds, seeds "
            f"{', '.join(map(str, protocol.seeds))}; metric `{protocol.metric}`, {picked}."
        )
        parts.append("\n".join(f"- Deviation: {one_line(text)}" for text in protocol.deviations))
    rows = [
        f"- {safe_cell(name)}: {one_line(text)}"
        for name, row in benchmark.rows.items()
        for text in (*row.deviations, *dict.fromkeys(run.images for run in report.rows[name].runs if run.images))
    ]
    parts.append("Deviations of single rows:\n\n" + "\n".join(rows) if rows else "")
    return "\n\n".join(part for part in parts if part)


def _settings(report: BenchmarkReport) -> str:
    rows = [
        [name, row.protocol, ", ".join(row.presets) or NONE,
         ", ".join(f"{key}={value}" for key, value in flat(row.settings).items()) or NONE]
        for name, row in report.benchmark.rows.items()
    ]  # fmt: skip
    heads = ["protocol", "settings"]
    shared = [
        [name, ", ".join(f"{key}={value}" for key, value in flat(protocol.settings).items())]
        for name, protocol in report.benchmark.protocols.items()
    ]
    own = markdown_table(["row", "protocol", "presets", "settings"], rows)
    return f"## Settings\n\n{markdown_table(heads, shared)}\n\n{own}"


def _sources(report: BenchmarkReport) -> str:
    rows = [
        [name, source.where, source.paper or NONE, one_line(source.note) or NONE]
        for name, source in report.benchmark.sources.items()
    ]
    return f"## Sources\n\n{markdown_table(['name', 'where', 'paper', 'note'], rows)}"


def _notes(report: BenchmarkReport) -> str:
    lines = [f"- {one_line(note)}" for note in report.benchmark.notes]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""
