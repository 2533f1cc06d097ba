"""Run the tables that test a paper's claims and write the reproduction report from their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.engine.environment import runs_root
from flows.papers.fidelity import page
from flows.papers.fidelity.claims import FMMAN_CLAIMS
from flows.papers.fidelity.formulas import PrintedAverage, contrast_by_stage, feature_cosines, printed_average
from flows.papers.replicate.results import TableReport
from flows.papers.replicate.run import RowProgress, make_plan, replicate, require_writable
from flows.papers.replicate.tables import load_table
from flows.run.code_version import code_version
from flows.run.find import read_run
from flows.run.folders import table_folder
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from models.files import write_text
from tasks.core.finished_rounds import finished_rounds
from tasks.core.store import Store

TABLES = ("fmman-claims-cabinet", "fmman-claims-defects")
TITLE = "FMMAN: how faithful our implementation is, and which claims hold in our runs"
MIN_SEEDS = 3
SCALE = "small"  # the only scale whose images every clone can synthesise


@dataclass(frozen=True)
class Measured:
    """The paper's formulas, measured in the runs of FMMAN.

    Attributes:
        averages: Run -> eq 15 as printed.
        contrasts: Run -> stage -> smallest and largest contrastive term.
        clusters: Run -> K.
        cosines: Run -> mean pairwise cosine of the labels' features in the first and the last training.
    """

    averages: dict[str, PrintedAverage]
    contrasts: dict[str, dict[int, tuple[float, float]]]
    clusters: dict[str, int]
    cosines: dict[str, tuple[float, float]]


def fidelity(
    target: Path, seeds: Sequence[int] | None, overrides: Sequence[str], progress: RowProgress
) -> dict[str, Any]:
    """Run the missing rows of the claims' tables and write the report.

    Args:
        target: The Markdown file.
        seeds: Seeds in place of the tables'; at least three.
        overrides: ``section.key=value`` for every row.
        progress: Receives the progress of rows and rounds.

    Returns:
        ``{"report": its path, "tables": content of their table.json, "verdicts": claim by claim}``.

    Raises:
        UserError: If a row of the tables failed, or there are fewer than three seeds.
    """
    if seeds is not None and len(seeds) < MIN_SEEDS:
        raise UserError("too few seeds for a verdict", where="--seeds", expected=f"{MIN_SEEDS}", found=len(seeds))
    require_writable(target.parent)
    tables: list[TableReport] = []
    for name in TABLES:
        plan = make_plan(load_table(name), SCALE, None, (), overrides, seeds)
        tables.append(replicate(plan, table_folder(runs_root() / "tables", name, name, SCALE), progress))
    failed = [f"{table.table}: {row.name}: {row.failed}" for table in tables for row in table.rows if row.failed]
    if failed:
        raise UserError("rows failed, so there is no report", where=", ".join(TABLES), found="; ".join(failed))
    write_text(target, report_text(tables, measure(tables)))
    verdicts = page.verdicts(tables, FMMAN_CLAIMS)
    return {"report": str(target), "tables": [table.as_dict() for table in tables], "verdicts": verdicts}


def measure(tables: Sequence[TableReport]) -> Measured:
    """Measure the printed formulas in each run of the tables' row FMMAN."""
    averages, contrasts, clusters, cosines = {}, {}, {}, {}
    for table in tables:
        for run in table.row("FMMAN").runs:
            root, name = runs_root() / run.run_id, f"{table.data.name}, seed {run.seed}"
            records = finished_rounds(Store(root), run.rounds.round)
            averages[name] = printed_average(root, records)
            contrasts[name], cosines[name] = contrast_by_stage(records), feature_cosines(records)
            clusters[name] = read_run(root).method.chosen.clusters
            short = [record.round for record in records if len(record.state.cluster_models) < clusters[name]]
            assert not short, f"rounds {short} of {root} have fewer prototypes than K, so K ln K is not their bound"
    return Measured(averages, contrasts, clusters, cosines)


def report_text(tables: Sequence[TableReport], measured: Measured) -> str:
    """Return the report as Markdown."""
    parts = [
        f"# {TITLE}",
        "Written by `fedscene fidelity` from the results of the tables "
        + ", ".join(f"`{table.table}`" for table in tables)
        + f"; do not edit. Code: {code_version()}. The paper: J. Low Power Electron. Appl. 2025, 15(3), 46.",
        "## What the paper leaves open, and what we chose",
        page.choices_table(as_values(Settings())),
        "## Claims and verdicts",
        page.ABOUT_CLAIMS,
        page.verdict_table(tables, FMMAN_CLAIMS),
        "## Results of the rows",
        *(part for table in tables for part in (page.about_table(table), page.results_table(table))),
        "## Eq 15 as printed",
        page.ABOUT_AVERAGE,
        page.average_text(measured.averages),
        "## The contrastive term of eq 11",
        page.ABOUT_CONTRAST,
        page.contrast_text(measured.contrasts, measured.clusters),
        "## Whether the label features collapse",
        page.ABOUT_COSINE,
        page.cosine_text(measured.cosines),
        "## Appendix: differences by table and seed",
        "Percentage points of macro-AP.",
        page.table_differences(tables, FMMAN_CLAIMS),
        "## Appendix: verdicts by other metrics",
        "Percentage points over all tables.",
        page.other_metrics(tables, FMMAN_CLAIMS),
    ]
    return "\n\n".join(parts) + "\n"
