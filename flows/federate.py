"""Train a federation: what ``fedscene run``, the pipeline flow and ``dvc repro`` call.

The rounds are in ``flows/rounds.py``. With ``federation.engine: prefect`` they are the Prefect flow of
``flows/federate_flow.py``; with ``local`` the same functions run in this process, without Prefect.
"""

from pathlib import Path

from flows.engine.environment import prepare_torch
from flows.engine.interrupt import stopping_on_interrupt
from flows.federation.progress import Progress, Quiet
from flows.rounds import FederationJob, Summary, run_federation
from flows.run.data_warnings import data_warnings
from flows.run.inputs import DataPaths, resolve_device
from flows.run.open import Run, open_run
from flows.run.pretrained import start_notes
from flows.run.tracker import require_tracking
from flows.settings.consistency import unused_aggregators
from flows.settings.schema import Settings
from tasks.client.worker_processes import worker_processes
from tasks.data.run_data import load_run_data


def federate(
    settings: Settings,
    data: DataPaths | None = None,
    *,
    run_id: str | None = None,
    out: Path | None = None,
    tags: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Run, or continue, a federation.

    Args:
        settings: Effective settings.
        data: Folders of the data set and the partition.
        run_id: A name for the run; default: derived from what decides its result.
        out: Folder for the small outputs that DVC records; ``None`` leaves them out.
        tags: More tags for MLflow.
        progress: Notified of stages and rounds.

    Raises:
        UserError: If settings, data, tracking or clients do not allow it. Finished rounds stay.
    """
    prepare_torch()
    require_tracking(settings)
    data, progress = data or DataPaths(), progress or Quiet()
    with worker_processes(worker_slots(settings)), open_run(settings, data, run_id) as run:
        _announce(settings, run, data, progress)
        job = FederationJob(settings, run, progress, out, tags or {})
        if settings.federation.engine == "prefect":
            from flows.federate_flow import run_federate_flow

            return run_federate_flow(job)
        with stopping_on_interrupt():
            return run_federation(job)


def worker_slots(settings: Settings) -> int | None:
    """Return the number of worker processes of a run; ``None``: clients train in threads of this process."""
    federation, device = settings.federation, resolve_device(settings)
    kind = federation.worker_type
    if kind == "auto":
        kind = "processes" if device == "cpu" and federation.workers > 1 else "threads"
    if kind == "threads":
        return None
    return federation.workers if device == "cpu" else federation.clients_per_gpu


def _announce(settings: Settings, run: Run, data: DataPaths, progress: Progress) -> None:
    images = sum(run.clients.values())
    progress.note(f"data: {data.dataset}, {images} training images of {len(run.clients)} clients")
    if run.context.kind == "single_label":
        progress.note(f"one label per image: objective {run.context.objective}")
    start = start_notes(settings, load_run_data(run.context)[0])
    for line in [*data_warnings(data), *start, *unused_aggregators(settings)]:
        progress.note(f"note: {line}")
    progress.note(f"run: {run.root}")
