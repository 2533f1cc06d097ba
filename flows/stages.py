"""The DVC stages ``federate`` and ``report``: they read ``params.yaml`` and ``data/``, and write ``data/``.

``dvc.yaml`` calls them as ``fedscene stage federate`` and ``fedscene stage report``.
"""

import contextlib
from pathlib import Path

from flows.engine.environment import runs_root
from flows.federate import federate
from flows.federation.progress import Progress
from flows.rounds import Summary
from flows.run.find import checked_id, read_run
from flows.run.lock import locked_run
from flows.run.prepare_data import require_data, source_change
from flows.settings.schema import Settings
from models.errors import UserError
from models.files import remove
from tasks.core.records import RoundRecord
from tasks.core.store import Store
from tasks.report.report import ReportSettings

FEDERATION = Path("data/federation")
REPORT = Path("data/report")


def federate_stage(settings: Settings, progress: Progress) -> Summary:
    """Train the rounds on the outputs of DVC's data stages; write the small outputs to ``data/federation``.

    A source that has changed since is only a warning: an earlier version of the data may have been restored.
    """
    data = require_data(settings)
    if change := source_change(settings.ingest):
        how = "fedscene pipeline ingests it again, and so does dvc repro --force --single-item ingest"
        progress.note(f"warning: the source has changed since {data.dataset} was made: {change}; {how}")
    return federate(settings, data, out=FEDERATION, progress=progress)


def report_stage(settings: Settings) -> list[RoundRecord]:
    """Write the report of the run that ``data/federation`` came from to ``data/report``.

    Raises:
        UserError: If the run's folder is gone.
    """
    run_id = Store(FEDERATION, linked_files=True).read_json("model/model.json")["run_id"]
    root = runs_root() / checked_id(str(run_id), f"{FEDERATION}/model/model.json")
    if not root.is_dir():
        raise UserError(
            "the folder of the run to report is missing",
            where=root,
            hint="dvc repro --force federate",
        )
    remove(REPORT)  # as DVC does before a stage: files of an earlier report must not stay
    return write_report(root, REPORT, settings.report, settings.federation.rounds)


def write_report(
    root: Path, out: Path, settings: ReportSettings | None = None, rounds: int | None = None
) -> list[RoundRecord]:
    """Write a run's report, by the run's settings unless others are given; return the rounds that it covers."""
    from tasks.core.round_summary import load_records
    from tasks.report.report import requested_rounds
    from tasks.report.sample_predictions import report_with_predictions

    rounds = requested_rounds(root, rounds)
    into_run = out.resolve().is_relative_to(root.resolve())
    with locked_run(root, "wait for it, or write elsewhere: --out FOLDER") if into_run else contextlib.nullcontext():
        report_with_predictions(root, out, settings or read_run(root).report, rounds)
        return load_records(root, rounds)
