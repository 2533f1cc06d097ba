"""What a run did, for people (report.md with plots), for DVC (metrics.json, rounds.csv) and for the terminal."""

import csv
import io
import json
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.data.audit_report import AUDIT_FILES, REPORT
from tasks.data.figures import FIGURES, TABLE, TITLES
from tasks.markdown import markdown_table, safe_cell
from tasks.records import RoundRecord
from tasks.round_table import COLUMNS, NONE, round_row, shown_row
from tasks.summary import best_round, best_score, load_records, totals
from tasks.tracking_settings import without_password

if TYPE_CHECKING:
    import numpy as np

MAIN_METRICS = ("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1", "loss", "mean_prevalence", "val_macro_ap")
DATA_PAGES = {TABLE: "How the clients' data differ, in figures", REPORT: "What was read, and what was not used"}
DATA_FIGURES = "data"  # folder of the run with the partition's pictures and tables
MOST_PICTURES = 60  # that a run keeps for its reports
COLUMNS_NOTE = "MB down counts equal copies to one client once. Worst clients: mean loss of the worst tenth of them."


class ReportSettings(Section):
    """What the report shows."""

    pictures: int = Field(
        default=12, ge=0, le=MOST_PICTURES, description="Test pictures shown with their predictions; 0 for none."
    )


@dataclass(frozen=True)
class Pictures:
    """Test pictures to show.

    Attributes:
        images: uint8 [n,3,S,S].
        truths: [n,C], not zero where the label is true.
        scores: [n,C] in [0,1].
    """

    images: "np.ndarray"
    truths: "np.ndarray"
    scores: "np.ndarray"


def build_report(
    run_root: Path, out: Path, settings: ReportSettings | None = None, pictures: Pictures | None = None
) -> dict[str, Any]:
    """Writes ``report.md``, ``metrics.json``, ``rounds.csv`` and ``plots/*.png`` of a run's finished rounds.

    What is known of its data is copied beside them: pictures to ``plots/``, ``heterogeneity.md`` and ``.json``, the
    audit of the source.

    Args:
        run_root: The run's folder: ``rounds/``, ``run.json``, ``settings.json``.
        out: The folder to write to; made if it is missing, files of the same names are replaced.
        settings: What to show.
        pictures: Test pictures with scores; at most ``settings.pictures`` of them are drawn.

    Returns:
        ``{"metrics": what metrics.json holds, "files": all files written, report.md first}``.

    Raises:
        UserError: If the run has no finished round or a file of it cannot be read.
    """
    settings = settings or ReportSettings()
    records = load_records(run_root)
    run, effective = _read_json(run_root / "run.json"), _read_json(run_root / "settings.json")
    out.mkdir(parents=True, exist_ok=True)
    plots = _draw(records, out / "plots", run, settings, pictures)
    data_plots, data_tables = _data_figures(run_root, out)
    plots |= data_plots
    metrics = _metrics(records)
    _write(out / "metrics.json", json.dumps(metrics, indent=1, sort_keys=True, allow_nan=False) + "\n")
    _write_rounds(out / "rounds.csv", records)
    parts = [
        _head(run, records),
        *(f"![{title}](plots/{path.name})" for title, path in plots.items()),
        *(f"[{DATA_PAGES[path.name]}]({path.name})" for path in data_tables if path.name in DATA_PAGES),
        _rounds(records),
        _breakdown("Classes", records[-1].per_class, records[-1]),
        _breakdown("Sites", records[-1].per_site, records[-1]),
        _clusters(records),
        _dropped(records),
        _notes(records),
        _settings(effective),
    ]
    _write(out / "report.md", "\n\n".join(part for part in parts if part) + "\n")
    files = [out / name for name in ("report.md", "metrics.json", "rounds.csv")]
    return {"metrics": metrics, "files": [*files, *plots.values(), *data_tables]}


def _draw(
    records: Sequence[RoundRecord],
    folder: Path,
    run: Mapping[str, Any],
    settings: ReportSettings,
    pictures: Pictures | None,
) -> dict[str, Path]:
    from tasks import plots

    drawn: dict[str, Path] = {}

    def draw(title: str, name: str, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments, folder / name)
        drawn[title] = folder / name

    draw("Learning curve", "learning-curve.png", plots.learning_curve, records)
    if records[-1].per_class:
        draw("Average precision by class", "classes.png", plots.per_class_bars, records[-1])
    if any(record.groups for record in records):
        draw("Clusters by round", "clusters.png", plots.groups_over_rounds, records)
    draw("Traffic by round", "traffic.png", plots.traffic, records)
    count = min(settings.pictures, len(pictures.images)) if pictures else 0
    if pictures and count:
        shown = (pictures.images[:count], pictures.truths[:count], pictures.scores[:count], run["classes"])
        draw("Test pictures", "pictures.png", plots.prediction_sheet, *shown)
    for stale in set(folder.glob("*.png")) - set(drawn.values()):
        stale.unlink()  # a plot of an earlier report that this run has no more
    return drawn


def _data_figures(run_root: Path, out: Path) -> tuple[dict[str, Path], list[Path]]:
    """The partition's pictures and tables, of which the run keeps a copy: title -> picture, and the tables."""
    source = run_root / DATA_FIGURES
    names = [name for name in (*TITLES, TABLE, FIGURES, *AUDIT_FILES) if (source / name).is_file()]
    targets = {name: out / "plots" / name if name in TITLES else out / name for name in names}
    for name, target in targets.items():
        shutil.copyfile(source / name, target)
    pictures = {TITLES[name]: target for name, target in targets.items() if name in TITLES}
    return pictures, [target for name, target in targets.items() if name not in TITLES]


def _metrics(records: Sequence[RoundRecord]) -> dict[str, float | None]:
    """The last round's main numbers, the best round and the traffic: what DVC compares. NaN is null, JSON has none.

    Everything else is in ``rounds.csv``; seconds are left out, as they differ every time.
    """
    best = best_round(records)
    flat: dict[str, float] = {key: records[-1].metrics[key] for key in MAIN_METRICS if key in records[-1].metrics}
    flat["rounds"] = len(records)
    flat["best_round"] = best
    flat["best_score"] = next(best_score(record) for record in records if record.round == best)
    for key in ("bytes_down", "bytes_up"):
        flat[f"all_rounds_{key}"] = sum(totals(record)[key] for record in records)
    return {key: number if math.isfinite(number) else None for key, number in flat.items()}


def _write_rounds(path: Path, records: Sequence[RoundRecord]) -> None:
    rows = [round_row(record) for record in records]
    fields = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: value if math.isfinite(value) else "" for key, value in row.items()} for row in rows)
    _write(path, text.getvalue())


def _head(run: Mapping[str, Any], records: Sequence[RoundRecord]) -> str:
    last, best = records[-1].metrics, best_round(records)
    chosen = next(record for record in records if record.round == best)
    results = {
        "macro AP, last round": last.get("macro_ap", math.nan),
        "macro AP of guessing (mean prevalence)": last.get("mean_prevalence", math.nan),
        "best round by validation": f"{best} (validation macro AP {best_score(chosen):.4f})",
        "rounds": len(records),
    }
    facts = {key: value for key, value in run.items() if isinstance(value, str | int | float)}
    rows = [[key, _value(value)] for key, value in (results | facts | {"classes": len(run["classes"])}).items()]
    title = f"# {safe_cell(run.get('run_id', 'Run'))}\n\n{markdown_table(['what', 'value'], rows)}"
    silent = last.get("micro_recall") == 0 and last.get("micro_precision") == 0
    note = "\n\nNo score reached 0.5, so nothing was predicted: F1, precision and recall are 0. Train longer."
    return f"{title}{note if silent else ''}\n\n## Plots"


def _settings(settings: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    sections = {**({"(top)": plain} if plain else {}), **{k: v for k, v in settings.items() if isinstance(v, dict)}}
    lines = [
        [name, ", ".join(f"{key}={_value(value)}" for key, value in _leaves(part))] for name, part in sections.items()
    ]
    return f"## Settings\n\n{markdown_table(['section', 'values'], lines)}"


def _rounds(records: Sequence[RoundRecord]) -> str:
    table = markdown_table([title for _, title, _ in COLUMNS], [shown_row(round_row(record)) for record in records])
    return f"## Rounds\n\n{table}\n\n{COLUMNS_NOTE}"


def _breakdown(title: str, table: Mapping[str, Mapping[str, float]], record: RoundRecord) -> str:
    if not table:
        return ""
    keys = list(dict.fromkeys(key for cells in table.values() for key in cells))
    rows = [[name, *(_number(cells.get(key), key) for key in keys)] for name, cells in table.items()]
    return f"## {title}, round {record.round}\n\n" + markdown_table(["name", *keys], rows)


def _clusters(records: Sequence[RoundRecord]) -> str:
    record = next((record for record in reversed(records) if record.groups), None)
    if record is None:
        return ""
    members: dict[int, list[str]] = defaultdict(list)
    for client, group in sorted(record.groups.items()):
        members[group].append(client)
    rows = [[str(group), str(len(clients)), ", ".join(clients)] for group, clients in sorted(members.items())]
    return f"## Clusters, round {record.round}\n\n" + markdown_table(["cluster", "clients", "who"], rows)


def _dropped(records: Sequence[RoundRecord]) -> str:
    cases: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for record in records:
        for entry in record.dropped:
            cases[entry.client, entry.stage, entry.reason].append(record.round)
    if not cases:
        return "## Dropped clients\n\nNone: every client that was asked counted."
    rows = [
        [client, str(stage), reason, str(len(rounds)), ", ".join(map(str, rounds))]
        for (client, stage, reason), rounds in sorted(cases.items())
    ]
    return "## Dropped clients\n\n" + markdown_table(["client", "stage", "reason", "times", "rounds"], rows)


def _notes(records: Sequence[RoundRecord]) -> str:
    lines = [f"- Round {record.round}: {safe_cell(note)}" for record in records for note in record.notes]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _number(value: float | None, key: str) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f}" if key in ("support", "images", "classes_used") else f"{value:.4f}"


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "unset" if value is None else without_password(value)


def _leaves(part: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in part.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return leaves


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError("A file of the run cannot be read", where=path, found=error) from error


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
