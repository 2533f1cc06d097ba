"""The report of a run: report.md with plots, and metrics.json and rounds.csv for DVC."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from models.files import copy_file, write_text
from models.settings.section import Section
from tasks.core.json_files import read_json
from tasks.core.problem import load_problem, primary_metric
from tasks.core.records import RoundRecord
from tasks.core.round_summary import client_quality, last_evaluated, load_records
from tasks.core.run_end import read_end
from tasks.core.store import Store
from tasks.data.ingest.audit_report import AUDIT_FILES, REPORT
from tasks.data.statistics.plots import FIGURES, TABLE
from tasks.data.statistics.plots import TITLES as DATA_TITLES
from tasks.evaluation.thresholds import class_thresholds, thresholds_of
from tasks.report.client_rounds import CSV, PARQUET, write_client_rounds
from tasks.report.head import head_section, settings_section
from tasks.report.number_files import CONFUSION, main_metrics, write_confusion, write_rounds
from tasks.report.tables import (
    classes_section,
    clients_section,
    clusters_section,
    dropped_section,
    metrics_section,
    notes_section,
    rounds_section,
    sites_section,
)

if TYPE_CHECKING:
    import numpy as np

DATA_PAGES = {TABLE: "How the clients' data differs, in numbers", REPORT: "Input files and their status"}
CLIENT_PAGES = {CSV: "Clients by round, csv", PARQUET: "Clients by round, parquet"}
DATA_FIGURES = "data"  # folder of a run with the partition's plots and tables
RUN_FILE = "a file of the run"  # in errors
MAX_IMAGES = 60  # images that a run keeps for its reports


class ReportSettings(Section):
    """Content of the report."""

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
    """Write ``report.md``, ``metrics.json``, ``rounds.csv`` and ``plots/*.png`` of a run's finished rounds.

    The plots and tables of its data are copied beside them: plots to ``plots/``, ``heterogeneity.md`` and ``.json``,
    the audit of the source.

    Args:
        run_root: The run's folder: ``rounds/``, ``run.json``, ``settings.json``.
        out: The folder to write to; created if it is missing. Files of the same names are replaced.
        settings: Content of the report.
        predictions: Test images with scores; at most ``settings.images`` of them are shown.
        rounds: Last round of the report, unless the run was stopped earlier; default: that of the run's settings.

    Returns:
        ``{"metrics": content of metrics.json, "files": all files written, report.md first}``.

    Raises:
        UserError: The run has no finished round, or one of its files cannot be read.
    """
    from tasks.report.mixing_plots import write_mixing_plots

    settings = settings or ReportSettings()
    records = load_records(run_root, requested_rounds(run_root, rounds))
    run, effective = (read_json(run_root / name, what=RUN_FILE) for name in ("run.json", "settings.json"))
    out.mkdir(parents=True, exist_ok=True)
    evaluation = {"threshold": 0.5, "zero_support": "exclude"} | (effective.get("evaluation") or {})
    budgets = effective.get("federation") or {}
    plots = write_plots(records, out / "plots", run, settings, predictions, evaluation["threshold"], budgets)
    plots |= write_mixing_plots(Store(run_root), records, out / "plots")
    by_client = write_client_rounds(out, records)
    confusion = write_confusion(out / CONFUSION, last_evaluated(records), run["classes"])
    data_plots, data_tables = _data_figures(run_root, out)
    plots |= data_plots
    for stale in set((out / "plots").glob("*.png")) - set(plots.values()):
        stale.unlink()  # a plot of an earlier report that no longer applies
    metrics = main_metrics(records)
    write_text(out / "metrics.json", json.dumps(metrics, indent=1, sort_keys=True, allow_nan=False) + "\n")
    write_rounds(out / "rounds.csv", records)
    parts = [
        head_section(run, effective, records, evaluation["threshold"], read_end(Store(run_root))),
        *(f"![{title}](plots/{path.name})" for title, path in plots.items()),
        *_links([*confusion, *by_client, *data_tables]),
        *_sections(records, evaluation["zero_support"]),
        settings_section(effective),
    ]
    write_text(out / "report.md", "\n\n".join(part for part in parts if part) + "\n")
    files = [out / name for name in ("report.md", "metrics.json", "rounds.csv")]
    return {"metrics": metrics, "files": [*files, *confusion, *by_client, *plots.values(), *data_tables]}


def _links(files: Sequence[Path]) -> list[str]:
    titles = {CONFUSION: "Images by class and predicted class", **CLIENT_PAGES, **DATA_PAGES}
    return [f"[{titles[path.name]}]({path.name})" for path in files if path.name in titles]


def _sections(records: Sequence[RoundRecord], zero_support: str) -> list[str]:
    evaluated = last_evaluated(records)
    return [
        metrics_section(evaluated),
        rounds_section(records),
        classes_section(evaluated, zero_support),
        sites_section(evaluated),
        clients_section(evaluated),
        clusters_section(records),
        dropped_section(records),
        notes_section(records),
    ]


def requested_rounds(run_root: Path, rounds: int | None = None) -> int | None:
    """Return the last round that a report covers; the run may have more, which are not shown.

    Args:
        run_root: The run's folder.
        rounds: Number of rounds; default: that of the run's latest settings.

    Returns:
        The number, or the round after which the run was stopped, if that is earlier.
    """
    file = run_root / "settings.json"
    if rounds is None and file.is_file():
        found = (read_json(file, what=RUN_FILE).get("federation") or {}).get("rounds")
        rounds = found if isinstance(found, int) else None
    end = read_end(Store(run_root))
    return rounds if end is None else min(end.round, rounds or end.round)


def write_plots(
    records: Sequence[RoundRecord],
    folder: Path,
    run: Mapping[str, Any],
    settings: ReportSettings,
    predictions: Predictions | None,
    threshold: float,
    budgets: Mapping[str, Any],
) -> dict[str, Path]:
    """Write the plots of a run; return title -> PNG file. ``budgets`` is the section ``federation`` of its settings."""
    from tasks.report import metric_plots, plots
    from tasks.report.prediction_sheet import prediction_sheet

    written: dict[str, Path] = {}
    evaluated = last_evaluated(records)

    def write(title: str, name: str, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments, folder / name)
        written[title] = folder / name

    write("Learning curve", "learning-curve.png", metric_plots.learning_curve, records)
    single = primary_metric(evaluated.metrics) == "accuracy"
    metric = "Accuracy" if single else "Average precision"
    if evaluated.per_class:
        title = "Recall and precision by class" if single else "Average precision by class"
        write(title, "classes.png", metric_plots.per_class_bars, evaluated)
    if evaluated.confusion:
        write("Confusion matrix", "confusion.png", metric_plots.confusion_matrix, evaluated, run["classes"])
    if client_quality(evaluated):
        write(f"{metric} by client", "clients.png", plots.client_bars, evaluated)
        write(f"{metric} by protocol", "protocols.png", plots.protocol_boxes, evaluated)
    if any(record.state.cluster_of for record in records):
        write("Clusters by round", "clusters.png", plots.clusters_by_round, records)
    write("Traffic by round", "traffic.png", plots.traffic, records, budgets.get("max_mb_per_round"))
    if primary_metric(evaluated.metrics) in evaluated.metrics:
        limit = (budgets.get("stop") or {}).get("max_mb")
        write(f"{metric} by traffic", "metric-by-traffic.png", metric_plots.metric_by_traffic, records, limit)
    count = min(settings.images, len(predictions.images)) if predictions else 0
    if predictions and count:
        problem, scores = load_problem(run.get("kind", "multi_label")), predictions.scores[:count]
        shown = (predictions.images[:count], predictions.truths[:count], scores, run["classes"])
        tuned = thresholds_of(evaluated.per_class)
        at = "the label's threshold" if tuned else f"{threshold:g}"
        rule = f"score ≥ {at}" if problem.kind == "multi_label" else "highest score"
        predicted = problem.predicted(scores, class_thresholds(tuned) if tuned else threshold)
        plot = partial(prediction_sheet, predicted=predicted, rule=rule)
        write("Test images", "sample_predictions.png", plot, *shown)
    return written


def _data_figures(run_root: Path, out: Path) -> tuple[dict[str, Path], list[Path]]:
    """Copy the run's plots and tables of its data; return title -> plot, and the tables."""
    source = run_root / DATA_FIGURES
    names = [name for name in (*DATA_TITLES, TABLE, FIGURES, *AUDIT_FILES) if (source / name).is_file()]
    targets = {name: out / "plots" / name if name in DATA_TITLES else out / name for name in names}
    for name, target in targets.items():
        copy_file(source / name, target)
    plots = {DATA_TITLES[name]: target for name, target in targets.items() if name in DATA_TITLES}
    return plots, [target for name, target in targets.items() if name not in DATA_TITLES]
