"""The DVC stages ``federate`` and ``report``: they read ``params.yaml`` and ``data/``, and write ``data/``.

``python -m flows.stages federate`` and ``python -m flows.stages report`` are what ``dvc.yaml`` calls.
"""

import contextlib
import sys
from pathlib import Path

from flows.data import require_data, source_change
from flows.environment import runs_root
from flows.federate import Summary, federate
from flows.federation import Progress
from flows.find_runs import checked_id, read_run
from flows.run_lock import locked
from flows.settings import Settings, load_settings
from models.errors import UserError
from models.files import remove
from tasks.records import RoundRecord
from tasks.report import ReportSettings
from tasks.store import Store

FEDERATION = Path("data/federation")
REPORT = Path("data/report")


def federate_stage(settings: Settings, progress: Progress) -> Summary:
    """Rounds from the data that DVC's stages made; the small outputs go to ``data/federation``.

    A source that has changed since is said only: the data of an earlier version may have been brought back.
    """
    data = require_data(settings)
    if change := source_change(settings.ingest):
        how = "fedscene pipeline makes it again, and so does dvc repro --force --single-item ingest"
        progress.note(f"warning: the source has changed since {data.dataset} was made: {change}; {how}")
    return federate(settings, data, out=FEDERATION, progress=progress)


def report_stage(settings: Settings) -> list[RoundRecord]:
    """The report of the run that ``data/federation`` came from, into ``data/report``.

    Raises:
        UserError: If the run's folder is gone.
    """
    run_id = Store(FEDERATION, linked_files=True).read_json("model/model.json")["run_id"]
    root = runs_root() / checked_id(str(run_id), f"{FEDERATION}/model/model.json")
    if not root.is_dir():
        raise UserError(
            "the run's folder is not here, so there is nothing to report from",
            where=root,
            hint="dvc repro --force federate",
        )
    remove(REPORT)  # as DVC does before a stage: nothing of an earlier report stays
    return write_report(root, REPORT, settings.report, settings.federation.rounds)


def write_report(
    root: Path, out: Path, settings: ReportSettings | None = None, rounds: int | None = None
) -> list[RoundRecord]:
    """A run's report, by the run's own settings unless others are given; returns the rounds that it is about."""
    from tasks.pictures import report_with_pictures
    from tasks.report import rounds_asked
    from tasks.summary import load_records

    rounds = rounds or rounds_asked(root)
    into_run = out.resolve().is_relative_to(root.resolve())
    with locked(root, "wait for it, or write elsewhere: --out FOLDER") if into_run else contextlib.nullcontext():
        report_with_pictures(root, out, settings or read_run(root).report, rounds)
        return load_records(root, rounds)


def run_stage(name: str) -> None:
    """One stage from the command line, with ``params.yaml`` here; ends the process with 2 if it refuses."""
    from flows.output import console, run_and_exit
    from flows.progress import Live

    def work() -> None:
        settings = load_settings()
        if name == "report":
            report_stage(settings)
            return
        with Live(console(True), settings.federation.rounds) as live:
            summary = federate_stage(settings, live)
        console(False).print(f"digest {summary.digest}\nresults: {summary.report}")

    run_and_exit(work)


if __name__ == "__main__":
    from flows.environment import prepare

    prepare()
    if sys.argv[1:] not in (["federate"], ["report"]):
        sys.exit("usage: python -m flows.stages federate|report")
    run_stage(sys.argv[1])
