"""A table as files: ``table.json`` with everything, ``table.md`` to read, and the paper's kinds of plots."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.papers.replicate.report import COSTS, over_seeds
from flows.papers.replicate.tables import METRICS
from models.files import write_text
from tasks.core.json_files import to_json_values
from tasks.plotting.markdown import markdown_table, safe_cell

TABLE, PAGE = "table.json", "table.md"
NONE = "-"
BY_ROW, BY_CLASS = "precision-recall.png", "class-f1.png"
PLOTS = {BY_ROW: "precision and recall by row", BY_CLASS: "F1 by class"}
TITLES = {"macro_ap": "macro-AP", "cf1": "macro-F1 (CF1)", "micro_ap": "micro-AP", "micro_f1": "micro-F1"}
_MORE = {
    "mean_f1": "mean F1",
    "macro_precision": "macro-P",
    "macro_recall": "macro-R",
    "micro_precision": "micro-P",
    "micro_recall": "micro-R",
}


def write_table(report: Mapping[str, Any], out: Path) -> list[Path]:
    """Writes ``table.json`` and ``table.md``, which shows the plots in ``out``; returns their paths, page first."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json_values(report), indent=1, allow_nan=False)
    plots = {name: title for name, title in PLOTS.items() if (out / name).is_file()}
    return [_write(out / PAGE, page(report, plots)), _write(out / TABLE, text + "\n")]


def write_plots(report: Mapping[str, Any], main: Sequence[str], out: Path) -> list[Path]:
    """Draws the plots that the rows allow; returns their paths."""
    from flows.papers.replicate.figures import class_bars, precision_recall

    rows = [row for row in report["rows"] if row["runs"]]
    chosen = [row for name in main for row in rows if row["name"] == name]
    drawn = []
    for path, draw, shown in (
        (out / BY_ROW, precision_recall, rows),
        (out / BY_CLASS, class_bars, chosen or rows),
    ):
        if shown:
            draw(shown, path)
            drawn.append(path)
        else:
            path.unlink(missing_ok=True)  # of an earlier table
    return drawn


def page(report: Mapping[str, Any], plots: Mapping[str, str]) -> str:
    """The table as Markdown, with plots file name -> title."""
    parts = [
        f"# {report['title']}",
        f"{safe_cell(report['source'])}. {_sentence(report['scale_note'])}",
        _about(report),
        "## Ours beside the paper's",
        _explained(report),
        markdown_table(*main_table(report)),
        "## Other metrics, and cost",
        "Two columns where a row goes on: at equal rounds, and at equal local epochs. Seconds are wall time of the "
        "rounds' stages; they depend on the machine. MB are 10^6 bytes, equal multiplicity to one client counted once.",
        _costs(report),
        "## Plots\n\nAt equal local epochs." if plots else "",
        *(f"![{title}]({name})" for name, title in plots.items()),
        _notes(report),
        _failures(report),
        _settings(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(report: Mapping[str, Any]) -> str:
    data, images = report["data"], report["data"]["images"]
    lines = {
        "images": data["title"],
        "in place of": data["note"],
        "size": f"{images['train']} train, {images['val']} val, {images['test']} test, {data['image_size']} pixels",
        "clients": f"{data['clients']}, partition {data['partition']}, of seed {data['seed']}",
        "seeds of the training": ", ".join(map(str, report["seeds"])),
        "classes without a positive test image": ", ".join(data["classes_without_positives"]) or "none",
        "partition's digest": data["partition_digest"],
        "code": report.get("code"),
        "note on the code": report.get("code_note"),
        "made with": ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        "on": f"{report['machine']['system']}, {report['machine']['cores']} cores",
    }
    return markdown_table(["what", "value"], [[key, value] for key, value in lines.items() if value])


def _explained(report: Mapping[str, Any]) -> str:
    rounds, seeds = report["rounds"], len(report["seeds"])
    dispersion = "mean +/- sample standard deviation over the seeds" if seeds > 1 else "one seed"
    return (
        f"Percent on the pooled test set, {dispersion}. **{rounds} r**: equal rounds, {rounds} for every row. "
        f"**{2 * rounds} r**: equal local epochs, {2 * rounds} rounds for rows that train a client once a round, "
        f"and still {rounds} for those that train it twice. **paper**: the printed figure, without std."
    )


def main_table(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: each metric at equal rounds, at equal local epochs, and the paper's."""
    rounds = report["rounds"]
    printed = any(row["paper"] for row in report["rows"])
    heads = ["row"]
    for name in METRICS:
        heads += [f"{TITLES[name]}, {rounds} r", f"{2 * rounds} r", *(["paper"] if printed else [])]
    rows = []
    for row in report["rows"]:
        cells = [_name(row, len(report["seeds"]))]
        for place, name in enumerate(METRICS):
            cells += [_percent(row, when, name) for when in ("rounds", "epochs")]
            cells += [f"{row['paper'][place]:.2f}" if row["paper"] else NONE] if printed else []
        rows.append(cells)
    return heads, rows


def _costs(report: Mapping[str, Any]) -> str:
    heads = ["row", *_MORE.values(), "MB down", "MB up", "seconds"]
    rows = [
        [
            _name(row, len(report["seeds"])),
            *(_both(row, name, _percent) for name in _MORE),
            *(_both(row, name, _cost) for name in COSTS),
        ]
        for row in report["rows"]
    ]
    return markdown_table(heads, rows)


def _both(row: Mapping[str, Any], name: str, shown: Any) -> str:
    """The value at equal rounds, and at equal epochs where that is another round."""
    first, last = shown(row, "rounds", name), shown(row, "epochs", name)
    return first if row["stages"] == 2 or not row["runs"] else f"{first}; {last}"


def _percent(row: Mapping[str, Any], when: str, name: str) -> str:
    mean, std = over_seeds(row, when, name)
    if not math.isfinite(mean):
        return NONE
    return f"{100 * mean:.2f}" if std is None else f"{100 * mean:.2f} +/- {100 * std:.2f}"


def _cost(row: Mapping[str, Any], when: str, name: str) -> str:
    mean, _ = over_seeds(row, when, name)
    if not math.isfinite(mean):
        return NONE
    return f"{mean:.1f}" if name == "seconds" else f"{mean / 1e6:.1f}"


def _name(row: Mapping[str, Any], seeds: int) -> str:
    done = len(row["runs"])
    mark = " (failed)" if row["failed"] else " (not run)" if not done else ""
    mark += f" ({done} of {seeds} seeds)" if 0 < done < seeds else ""
    return f"{row['name']}{mark}"


def _notes(report: Mapping[str, Any]) -> str:
    lines = [f"- {_sentence(note)}" for note in report["notes"]]
    lines += [f"- {safe_cell(row['name'])}: {_sentence(row['note'])}" for row in report["rows"] if row["note"]]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _failures(report: Mapping[str, Any]) -> str:
    lines = [f"- {safe_cell(row['name'])}: {safe_cell(row['failed'])}" for row in report["rows"] if row["failed"]]
    return "## Rows that failed\n\n" + "\n".join(lines) if lines else ""


def _settings(report: Mapping[str, Any]) -> str:
    """What each row sets; what all have in common is in the JSON."""
    rows = [
        [
            row["name"],
            ", ".join(row["presets"]) or NONE,
            ", ".join(f"{key}={value}" for key, value in row["settings"].items()) or NONE,
            "; ".join(run["run_id"] for run in row["runs"]) or NONE,
        ]
        for row in report["rows"]
    ]
    table = markdown_table(["row", "presets", "settings", "runs"], rows)
    return (
        f"## Settings of the rows\n\nWhat all rows have in common is in {TABLE}, with every seed's figures.\n\n{table}"
    )


def _sentence(text: str) -> str:
    """Text of a table file: one line."""
    return " ".join(text.split())


def _write(path: Path, text: str) -> Path:
    write_text(path, text)
    return path
