"""A table as files: ``table.json`` with everything, ``table.md`` to read, and the paper's kinds of plots."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flows.papers.replicate.results import COMPARISONS, COSTS, Comparison, RowResult, TableReport
from flows.papers.replicate.schema import METRICS
from models.files import write_text
from tasks.core.json_files import to_json_values
from tasks.plotting.markdown import markdown_table, safe_cell

TABLE, PAGE = "table.json", "table.md"
NONE = "-"
BY_ROW, BY_CLASS = "precision-recall.png", "class-f1.png"
PLOTS = {BY_ROW: "precision and recall by row", BY_CLASS: "F1 by class"}
METRIC_TITLES = {"macro_ap": "macro-AP", "cf1": "macro-F1 (CF1)", "micro_ap": "micro-AP", "micro_f1": "micro-F1"}
_OTHER_METRICS = {
    "mean_f1": "mean F1",
    "macro_precision": "macro-P",
    "macro_recall": "macro-R",
    "micro_precision": "micro-P",
    "micro_recall": "micro-R",
}


def write_table(report: TableReport, out: Path) -> list[Path]:
    """Write ``table.json`` and ``table.md``, which shows the plots in ``out``; return their paths, page first."""
    out.mkdir(parents=True, exist_ok=True)
    plots = {name: title for name, title in PLOTS.items() if (out / name).is_file()}
    write_text(out / PAGE, page(report, plots))
    write_text(out / TABLE, json.dumps(to_json_values(report.as_dict()), indent=1, allow_nan=False) + "\n")
    return [out / PAGE, out / TABLE]


def write_plots(report: TableReport, main: Sequence[str], out: Path) -> list[Path]:
    """Draw the plots that the rows allow; return their paths.

    Args:
        report: The table.
        main: Names of the rows in the plot of classes; all rows with runs if none of these has one.
        out: Folder of the table.
    """
    from flows.papers.replicate.figures import class_bars, precision_recall

    rows = [row for row in report.rows if row.runs]
    chosen = [row for name in main for row in rows if row.name == name]
    written = []
    for path, draw, shown in (
        (out / BY_ROW, precision_recall, rows),
        (out / BY_CLASS, class_bars, chosen or rows),
    ):
        if shown:
            draw(shown, path)
            written.append(path)
        else:
            path.unlink(missing_ok=True)  # of an earlier table
    return written


def page(report: TableReport, plots: Mapping[str, str]) -> str:
    """Return the table as Markdown, with plots file name -> title."""
    parts = [
        f"# {report.title}",
        f"{safe_cell(report.source)}. {_one_line(report.scale_note)}",
        _about(report),
        "## Our results vs. the paper",
        _how_to_read(report),
        markdown_table(*main_table(report)),
        "## Other metrics and cost",
        "Two values where the comparisons differ: at equal rounds; at equal local epochs. Seconds are wall time of the "
        "rounds' stages and depend on the machine. MB are 10^6 bytes; identical tensors sent to one client count once.",
        _costs(report),
        "## Plots\n\nAt equal local epochs." if plots else "",
        *(f"![{title}]({name})" for name, title in plots.items()),
        _notes(report),
        _failures(report),
        _settings(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(report: TableReport) -> str:
    data, images = report.data, report.data.images
    lines = {
        "images": data.title,
        "in place of": data.note,
        "size": f"{images['train']} train, {images['val']} val, {images['test']} test, {data.image_size} pixels",
        "clients": f"{data.clients}, partition {data.partition}, of seed {data.seed}",
        "seeds of the training": ", ".join(map(str, report.seeds)),
        "classes without a positive test image": ", ".join(data.classes_without_positives) or "none",
        "partition's digest": data.partition_digest,
        "code": report.code,
        "made with": ", ".join(f"{name} {version}" for name, version in report.versions.items()),
        "on": f"{report.machine['system']}, {report.machine['cores']} cores",
    }
    return markdown_table(["what", "value"], [[key, value] for key, value in lines.items() if value])


def _how_to_read(report: TableReport) -> str:
    rounds, seeds = report.rounds, len(report.seeds)
    spread = "mean +/- standard deviation over the seeds" if seeds > 1 else "one seed, so no standard deviation"
    return (
        f"Percent on the pooled test set, {spread}. **{rounds} r**: equal rounds, {rounds} for every row. "
        f"**{2 * rounds} r**: equal local epochs, {2 * rounds} rounds for rows that train a client once a round, "
        f"and still {rounds} for those that train it twice. **paper**: the printed figure, without a deviation."
    )


def main_table(report: TableReport) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: each metric at equal rounds, at equal local epochs, and the paper's."""
    rounds = report.rounds
    printed = any(row.paper for row in report.rows)
    heads = ["row"]
    for name in METRICS:
        heads += [f"{METRIC_TITLES[name]}, {rounds} r", f"{2 * rounds} r", *(["paper"] if printed else [])]
    rows = []
    for row in report.rows:
        cells = [_row_title(row, len(report.seeds))]
        for column, name in enumerate(METRICS):
            cells += [_percent(row, comparison, name) for comparison in COMPARISONS]
            cells += [f"{row.paper[column]:.2f}" if row.paper else NONE] if printed else []
        rows.append(cells)
    return heads, rows


def _costs(report: TableReport) -> str:
    heads = ["row", *_OTHER_METRICS.values(), "MB down", "MB up", "seconds"]
    rows = [
        [
            _row_title(row, len(report.seeds)),
            *(_both(row, name, _percent) for name in _OTHER_METRICS),
            *(_both(row, name, _cost) for name in COSTS),
        ]
        for row in report.rows
    ]
    return markdown_table(heads, rows)


def _both(row: RowResult, name: str, text: Callable[[RowResult, Comparison, str], str]) -> str:
    """Return the value at equal rounds, and at equal epochs if that is another round."""
    first, last = text(row, "rounds", name), text(row, "epochs", name)
    return first if row.local_trainings == 2 or not row.runs else f"{first}; {last}"


def _percent(row: RowResult, comparison: Comparison, name: str) -> str:
    mean, std = row.mean_and_std(comparison, name)
    if not math.isfinite(mean):
        return NONE
    return f"{100 * mean:.2f}" if std is None else f"{100 * mean:.2f} +/- {100 * std:.2f}"


def _cost(row: RowResult, comparison: Comparison, name: str) -> str:
    mean, _ = row.mean_and_std(comparison, name)
    if not math.isfinite(mean):
        return NONE
    return f"{mean:.1f}" if name == "seconds" else f"{mean / 1e6:.1f}"


def _row_title(row: RowResult, seeds: int) -> str:
    done = len(row.runs)
    remark = " (failed)" if row.failed else " (not run)" if not done else ""
    remark += f" ({done} of {seeds} seeds)" if 0 < done < seeds else ""
    return f"{row.name}{remark}"


def _notes(report: TableReport) -> str:
    lines = [f"- {_one_line(note)}" for note in report.notes]
    lines += [f"- {safe_cell(row.name)}: {_one_line(row.note)}" for row in report.rows if row.note]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _failures(report: TableReport) -> str:
    lines = [f"- {safe_cell(row.name)}: {safe_cell(row.failed)}" for row in report.rows if row.failed]
    return "## Rows that failed\n\n" + "\n".join(lines) if lines else ""


def _settings(report: TableReport) -> str:
    """Return what each row sets; what all have in common is in the JSON."""
    rows = [
        [
            row.name,
            ", ".join(row.presets) or NONE,
            ", ".join(f"{key}={value}" for key, value in row.settings.items()) or NONE,
            "; ".join(run.run_id for run in row.runs) or NONE,
        ]
        for row in report.rows
    ]
    table = markdown_table(["row", "presets", "settings", "runs"], rows)
    return (
        f"## Settings of the rows\n\n{TABLE} has the settings that all rows have in common, and every seed's figures."
        f"\n\n{table}"
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
