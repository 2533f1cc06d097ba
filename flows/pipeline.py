"""The whole pipeline as one Prefect flow: ingest -> version -> partition -> federate -> report.

The data stages go through DVC, one at a time; the federation runs in this process as the subflow ``federate``, and
its outputs are recorded afterwards, so that ``dvc repro`` has nothing to do. ``fedscene pipeline`` and the deployments
of ``prefect.yaml`` run it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.engine.environment import prepare

prepare()

from prefect import flow  # noqa: E402 - the environment comes first

from flows.engine.engines import task_run_name  # noqa: E402
from flows.engine.flow_calls import call_flow, given_to_flow, user_errors_fail_the_flow  # noqa: E402
from flows.federation.progress import Progress, Quiet  # noqa: E402
from flows.rounds import Summary  # noqa: E402
from flows.run.inputs import require_weights  # noqa: E402
from flows.run.minimum_images import check_image_count  # noqa: E402
from flows.run.prepare_data import source_change  # noqa: E402
from flows.settings.files import load_settings  # noqa: E402
from flows.settings.params_file import settings_text  # noqa: E402
from flows.settings.schema import Settings  # noqa: E402
from flows.stages import federate_stage, report_stage  # noqa: E402
from models.errors import PREFIX, UserError  # noqa: E402
from tasks.core.names import visible_lines  # noqa: E402
from tasks.registry import prefect_task  # noqa: E402
from tasks.versioning import dvc  # noqa: E402
from tasks.versioning.raw_data import recover  # noqa: E402
from tasks.versioning.rollback import undoable  # noqa: E402

PARAMS = "params.yaml"

dvc_stage = prefect_task("dvc-stage")  # tasks.versioning.dvc:repro
dvc_record = prefect_task("dvc-record")  # tasks.versioning.dvc:commit


@flow(name="pipeline", persist_result=False)
@user_errors_fail_the_flow
def pipeline(root: str = ".", overrides: list[str] | None = None) -> Summary:
    """Bring data, model and report up to date.

    DVC skips what is up to date, and the federation skips finished rounds.

    Args:
        root: The DVC repository.
        overrides: ``section.key=value`` texts, written to ``params.yaml`` before anything runs; undone on failure.
    """
    with pipeline_settings(root, overrides or ()) as start:
        check_settings(start.root, start.settings)
        ingest(start.root, start.settings, start.progress)  # DVC records the versions of raw data and data set
        partition(start.root, start.progress)
        summary = federate_stage(start.settings, start.progress)  # the subflow federate
        report_stage(start.settings)
        record(start.root, ["federate", "report"])
    return summary


def check_settings(root: Path, settings: Settings) -> None:
    """Check what can be checked before the first stage.

    Raises:
        UserError: If this is not a DVC repository, the data would be too few, or a file of weights is missing.
    """
    dvc.check_repository(root)
    check_image_count(settings)
    require_weights(settings)


def ingest(root: Path, settings: Settings, progress: Progress) -> None:
    """Bring the stages that ``ingest`` depends on and the data set up to date.

    Raw data that were changed in place become a new version too. DVC watches ``data/raw`` only: a source elsewhere is
    compared here, and ingested again if it has changed.
    """
    progress.stage(0, "ingest (dvc)", 0)
    run_stage(root, "ingest", "ingest", single=False)
    if change := source_change(settings.ingest, root / "data"):
        progress.note(f"the source has changed since data/dataset was made: {change}; ingesting again")
        run_stage(root, "ingest", "ingest again", force=True)


def partition(root: Path, progress: Progress) -> None:
    """Bring the clients' partition up to date."""
    progress.stage(0, "partition (dvc)", 0)
    run_stage(root, "partition", "partition")


def run_stage(root: Path, stage: str, title: str, *, single: bool = True, force: bool = False) -> None:
    """Run ``dvc repro`` of a stage as a task named ``title``."""
    named = dvc_stage.with_options(task_run_name=task_run_name(title))
    named.submit(root, stage, single=single, force=force).result()


def record(root: Path, stages: list[str]) -> None:
    """Record the outputs of stages that ran here in ``dvc.lock``, so that DVC need not run them."""
    named = dvc_record.with_options(task_run_name=task_run_name(f"record {' and '.join(stages)}"))
    named.submit(root, stages).result()


@dataclass(frozen=True)
class PipelineStart:
    """What the flow ``pipeline`` starts from.

    Attributes:
        root: The DVC repository, which is the working directory.
        settings: Effective settings; ``params.yaml`` holds them.
        progress: Notified of stages and rounds.
    """

    root: Path
    settings: Settings
    progress: Progress


class WorkerLog(Quiet):
    """Prints notes as lines of the worker's log."""

    def note(self, text: str) -> None:
        """Print the line."""
        print(text, flush=True)


def run_pipeline(root: Path, settings: Settings, progress: Progress) -> Summary:
    """Run the flow for the command line, inside ``settings_in_params`` and with a progress display."""
    return call_flow(pipeline, "from the command line", PipelineStart(root, settings, progress))


@contextlib.contextmanager
def pipeline_settings(root: str, overrides: Sequence[str]) -> Iterator[PipelineStart]:
    """Yield what the command line gave to the flow; on a worker, load the settings and print notes and errors."""
    given = given_to_flow()
    if isinstance(given, PipelineStart):
        yield given
        return
    os.chdir(root)
    here, log = Path.cwd(), WorkerLog()
    try:
        with settings_in_params(here, lambda: load_settings(Path(PARAMS), (), overrides), log.note) as settings:
            yield PipelineStart(here, settings, log)
    except UserError as error:
        log.note(f"{PREFIX}{visible_lines(error)}")
        raise


@contextlib.contextmanager
def settings_in_params(root: Path, load: Callable[[], Settings], note: Callable[[str], None]) -> Iterator[Settings]:
    """Write settings to ``params.yaml``, where they stay if the block ends well; an error undoes the change.

    Args:
        root: The DVC repository.
        load: Returns the settings; called after what a killed run left has been undone.
        note: Called with a line for what was changed or undone.

    Raises:
        UserError: If this is not a DVC repository, or another such run is active.
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
            note(f"changed, as dvc.lock records what ran; a failure rolls it back, else git checkout {PARAMS} does")
        yield settings
