"""What a run did, for people (report.md with plots), for DVC (metrics.json, rounds.csv) and for the terminal."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from models.base_settings import Section
from models.files import copy_file, write_text
from tasks.core.json_files import read_json
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, best_score, client_quality, last_evaluated, load_records, totals
from tasks.data.ingest.audit_report import AUDIT_FILES, REPORT
from tasks.data.ingest.unusable_files import unusable_line
from tasks.data.statistics.plots import FIGURES, TABLE, TITLES
from tasks.plotting.markdown import markdown_table, safe_cell
from tasks.report.round_table import NONE, round_row
from tasks.report.tables import (
    classes_section,
    clients_section,
    clusters_section,
    dropped_section,
    notes_section,
    rounds_section,
    scores_section,
    sites_section,
)
from tasks.tracking.uri import without_password

if TYPE_CHECKING:
    import numpy as np

MAIN_METRICS = ("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1", "loss", "mean_prevalence", "val_macro_ap")
CLIENT_METRICS = ("client/macro_ap/mean", "client/macro_ap/worst_decile")  # where clients have test images of their own
DATA_PAGES = {TABLE: "How the clients' data differ, in figures", REPORT: "What was read, and what was not used"}
DATA_FIGURES = "data"  # folder of the run with the partition's plots and tables
RUN_FILE = "a file of the run"  # in errors
MAX_IMAGES = 60  # that a run keeps for its reports


class ReportSettings(Section):
    """What the report shows."""

    images: int = Field(
        default=12, ge=0, le=MAX_IMAGES, description="Test images shown with their predictions; 0 for none."
    )


@dataclass(frozen=True)
class Predictions:
    """Test images to show.

    Attributes:
        images: uint8 [n,3,S,S].
        truths: [n,C], not zero where the label is true.
        scores: [n,C] in [0,1].
    """

    images: "np.ndarray"
    truths: "np.ndarray"
    scores: "np.ndarray"


def build_report(
    run_root: Path,
    out: Path,
    settings: ReportSettings | None = None,
    predictions: Predictions | None = None,
    rounds: int | None = None,
) -> dict[str, Any]:
    """Writes ``report.md``, ``metrics.json``, ``rounds.csv`` and ``plots/*.png`` of a run's finished rounds.

    What is known of its data is copied beside them: plots to ``plots/``, ``heterogeneity.md`` and ``.json``, the
    audit of the source.

    Args:
        run_root: The run's folder: ``rounds/``, ``run.json``, ``settings.json``.
        out: The folder to write to; made if it is missing, files of the same names are replaced.
        settings: What to show.
        predictions: Test images with scores; at most ``settings.images`` of them are shown.
        rounds: Rounds that the report is about; those that were asked for when the run was last worked on.

    Returns:
        ``{"metrics": what metrics.json holds, "files": all files written, report.md first}``.

    Raises:
        UserError: If the run has no finished round or a file of it cannot be read.
    """
    settings = settings or ReportSettings()
    records = load_records(run_root, rounds or rounds_asked(run_root))
    run, effective = (read_json(run_root / name, what=RUN_FILE) for name in ("run.json", "settings.json"))
    out.mkdir(parents=True, exist_ok=True)
    scoring = {"threshold": 0.5, "zero_support": "exclude"} | (effective.get("evaluation") or {})
    plots = _draw(records, out / "plots", run, settings, predictions, scoring["threshold"])
    data_plots, data_tables = _data_figures(run_root, out)
    plots |= data_plots
    for stale in set((out / "plots").glob("*.png")) - set(plots.values()):
        stale.unlink()  # a plot of an earlier report that this run has no more
    metrics = _metrics(records)
    write_text(out / "metrics.json", json.dumps(metrics, indent=1, sort_keys=True, allow_nan=False) + "\n")
    _write_rounds(out / "rounds.csv", records)
    scored = last_evaluated(records)
    parts = [
        _head(run, records, scoring["threshold"]),
        *(f"![{title}](plots/{path.name})" for title, path in plots.items()),
        *(f"[{DATA_PAGES[path.name]}]({path.name})" for path in data_tables if path.name in DATA_PAGES),
        scores_section(scored),
        rounds_section(records),
        classes_section(scored, scoring["zero_support"]),
        sites_section(scored),
        clients_section(scored),
        clusters_section(records),
        dropped_section(records),
        notes_section(records),
        _settings(effective),
    ]
    write_text(out / "report.md", "\n\n".join(part for part in parts if part) + "\n")
    files = [out / name for name in ("report.md", "metrics.json", "rounds.csv")]
    return {"metrics": metrics, "files": [*files, *plots.values(), *data_tables]}


def rounds_asked(run_root: Path) -> int | None:
    """The rounds that were asked for when a run was last worked on; it may have more, of which nothing is shown."""
    file = run_root / "settings.json"
    rounds = (read_json(file, what=RUN_FILE).get("federation") or {}).get("rounds") if file.is_file() else None
    return rounds if isinstance(rounds, int) else None


def _draw(
    records: Sequence[RoundRecord],
    folder: Path,
    run: Mapping[str, Any],
    settings: ReportSettings,
    predictions: Predictions | None,
    threshold: float,
) -> dict[str, Path]:
    from tasks.report import plots

    drawn: dict[str, Path] = {}
    scored = last_evaluated(records)

    def draw(title: str, name: str, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments, folder / name)
        drawn[title] = folder / name

    draw("Learning curve", "learning-curve.png", plots.learning_curve, records)
    if scored.per_class:
        draw("Average precision by class", "classes.png", plots.per_class_bars, scored)
    if client_quality(scored):
        draw("Average precision by client", "clients.png", plots.client_bars, scored)
    if any(record.cluster_of for record in records):
        draw("Clusters by round", "clusters.png", plots.groups_over_rounds, records)
    draw("Traffic by round", "traffic.png", plots.traffic, records)
    count = min(settings.images, len(predictions.images)) if predictions else 0
    if predictions and count:
        shown = (predictions.images[:count], predictions.truths[:count], predictions.scores[:count], run["classes"])
        sheet = partial(plots.prediction_sheet, threshold=threshold)
        draw("Test images", "sample_predictions.png", sheet, *shown)
    return drawn


def _data_figures(run_root: Path, out: Path) -> tuple[dict[str, Path], list[Path]]:
    """The partition's plots and tables, of which the run keeps a copy: title -> plot, and the tables."""
    source = run_root / DATA_FIGURES
    names = [name for name in (*TITLES, TABLE, FIGURES, *AUDIT_FILES) if (source / name).is_file()]
    targets = {name: out / "plots" / name if name in TITLES else out / name for name in names}
    for name, target in targets.items():
        copy_file(source / name, target)
    plots = {TITLES[name]: target for name, target in targets.items() if name in TITLES}
    return plots, [target for name, target in targets.items() if name not in TITLES]


def _metrics(records: Sequence[RoundRecord]) -> dict[str, float | None]:
    """What DVC compares: the last scored round's main numbers, the best round, the traffic. NaN is null in JSON.

    Everything else is in ``rounds.csv``; seconds are left out, as they differ every time.
    """
    best = best_round(records)
    last = last_evaluated(records).metrics
    flat: dict[str, float] = {key: last[key] for key in (*MAIN_METRICS, *CLIENT_METRICS) if key in last}
    flat["rounds"] = len(records)
    flat["best_round"] = best
    flat["best_score"] = next(best_score(record) for record in records if record.round == best)
    for key in ("bytes_down", "bytes_up"):
        flat[f"all_rounds_{key}"] = sum(totals(record)[key] for record in records)
    return {key: number if math.isfinite(number) else None for key, number in flat.items()}


def _write_rounds(path: Path, records: Sequence[RoundRecord]) -> None:
    rows = [round_row(record) for record in records]
    longest_first = sorted(rows, key=len, reverse=True)  # a round that was not scored must not decide the order
    fields = list(dict.fromkeys(key for row in longest_first for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: value if math.isfinite(value) else "" for key, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _head(run: Mapping[str, Any], records: Sequence[RoundRecord], threshold: float) -> str:
    scored, best = last_evaluated(records), best_round(records)
    last, score = scored.metrics, next(best_score(record) for record in records if record.round == best)
    results = {
        f"macro AP, round {scored.round}": last.get("macro_ap", math.nan),
        "macro AP, chance level": last.get("chance/macro_ap", last.get("mean_prevalence", math.nan)),
        "best round by validation": f"{best} (validation macro AP {score:.4f})" if math.isfinite(score) else NONE,
        "rounds": len(records),
    }
    facts = {key: value for key, value in run.items() if isinstance(value, str | int | float)}
    rows = [[key, _value(value)] for key, value in (results | facts | {"classes": len(run["classes"])}).items()]
    title = f"# {safe_cell(run.get('run_id', 'Run'))}\n\n{markdown_table(['what', 'value'], rows)}"
    silent = last.get("micro_recall") == 0 and last.get("micro_precision") == 0
    note = f"\n\nNothing true had a score from {threshold:g} on: F1, precision and recall are 0. Train longer."
    unused = unusable_line(run.get("input") or {}, where=False)
    unused = f"\n\n{unused}; [what was read, and what was not used]({REPORT}) lists them." if unused else ""
    return f"{title}{note if silent else ''}{unused}\n\n## Plots"


def _settings(settings: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    sections = {**({"(top)": plain} if plain else {}), **{k: v for k, v in settings.items() if isinstance(v, dict)}}
    lines = [
        [name, ", ".join(f"{key}={_value(value)}" for key, value in _leaves(part))] for name, part in sections.items()
    ]
    return f"## Settings\n\n{markdown_table(['section', 'values'], lines)}"


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "unset" if value is None else without_password(value)


def _leaves(part: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in part.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return leaves
