"""The whole pipeline as one Prefect flow: ingest -> version -> partition -> federate -> report.

The data stages go through DVC, one at a time; the federation runs in this process as a subflow, and its outputs
are recorded afterwards, so that ``dvc repro`` finds nothing to do. The deployments of ``prefect.yaml`` run it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flows.engine.environment import prepare

prepare()

from prefect import flow  # noqa: E402 - the environment comes first

from flows.engine.engines import PrefectEngine, in_flow  # noqa: E402
from flows.federate import Summary  # noqa: E402
from flows.federation.progress import Progress, Quiet  # noqa: E402
from flows.run.data import source_change  # noqa: E402
from flows.run.minimum_images import check_enough  # noqa: E402
from flows.run.open import require_weights  # noqa: E402
from flows.settings.files import load_settings  # noqa: E402
from flows.settings.params_file import settings_text  # noqa: E402
from flows.settings.schema import Settings  # noqa: E402
from flows.stages import federate_stage, report_stage  # noqa: E402
from models.errors import PREFIX, UserError  # noqa: E402
from tasks.core.names import visible_lines  # noqa: E402
from tasks.registry import refused_state  # noqa: E402
from tasks.versioning import dvc  # noqa: E402
from tasks.versioning.raw_data import recover  # noqa: E402
from tasks.versioning.rollback import undoable  # noqa: E402

PARAMS = "params.yaml"
Result = TypeVar("Result")


class Printed(Quiet):
    """Notes as lines of the worker's log."""

    def note(self, text: str) -> None:
        """Prints the line."""
        print(text, flush=True)


@flow(name="pipeline", persist_result=False)
def pipeline(root: str = ".", overrides: list[str] | None = None) -> Any:
    """Brings data, model and report up to date.

    Args:
        root: The DVC repository.
        overrides: ``section.key=value`` texts, written to ``params.yaml`` before anything runs; taken back if it fails.
    """
    os.chdir(root)
    here, progress = Path.cwd(), Printed()
    try:
        with_settings(
            here,
            lambda: load_settings(Path(PARAMS), (), overrides or ()),
            progress.note,
            lambda settings: run_pipeline_stages(here, settings, progress),
        )
    except UserError as error:
        print(f"{PREFIX}{visible_lines(error)}", flush=True)
        return refused_state(error)
    return None


def run_pipeline(root: Path, settings: Settings, progress: Progress) -> Summary:
    """The pipeline for the command line: the same stages in a flow of the same name, with someone to tell."""
    return in_flow("pipeline", "from the command line", lambda: run_pipeline_stages(root, settings, progress))


def with_settings(
    root: Path, load: Callable[[], Settings], note: Callable[[str], None], run: Callable[[Settings], Result]
) -> Result:
    """Runs with settings that ``params.yaml`` holds for the duration, and keeps if ``run`` ends well.

    Args:
        root: The DVC repository.
        load: Gives the settings; called when what a killed run left has been taken back.
        note: Called with a line for what was changed or taken back.
        run: The work.

    Raises:
        UserError: If this is no DVC repository, another such run is going on, or the work refuses.
    """
    dvc.check_repository(root)
    for name in recover(root):
        note(f"data/raw/{name} is back in its place: fedscene data add was killed")
    with undoable(root, "fedscene pipeline", note) as change:
        settings = load()
        text, lines = settings_text(root / PARAMS, settings)
        change({PARAMS: text})
        for line in lines:
            note(f"{PARAMS}: {line}")
        if lines:
            note(f"changed, as dvc.lock records what ran; a failure takes it back, else git checkout {PARAMS} does")
        return run(settings)


def run_pipeline_stages(root: Path, settings: Settings, progress: Progress) -> Summary:
    """The stages in order; what DVC finds up to date is skipped by it, finished rounds by the federation.

    Raises:
        UserError: If this is no DVC repository, or a stage refuses.
    """
    dvc.check_repository(root)
    check_enough(settings)
    require_weights(settings)
    engine = PrefectEngine()
    for stage in ("ingest", "partition"):
        progress.stage(0, f"{stage} (dvc)", 0)
        # With what it depends on, so that raw data changed in place become a new version too.
        engine.run("dvc-stage", stage, root, stage, stage != "ingest")
        # DVC looks at data/raw only; images may lie elsewhere.
        if stage == "ingest" and (change := source_change(settings.ingest, root / "data")):
            progress.note(f"the source has changed since data/dataset was made: {change}; ingesting again")
            engine.run("dvc-stage", "ingest again", root, stage, True, None, dvc.LOCK_WAIT_S, True)
    summary = federate_stage(settings, progress)
    report_stage(settings)
    engine.run("dvc-record", "record federate and report", root, ["federate", "report"])
    return summary
