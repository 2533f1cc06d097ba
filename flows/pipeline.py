"""The whole pipeline as one Prefect flow: ingest -> version -> partition -> federate -> report.

The data stages go through DVC, one at a time; the federation runs in this process as a subflow, and its outputs
are recorded afterwards, so that ``dvc repro`` finds nothing to do. The deployments of ``prefect.yaml`` run it.
"""

import os
from pathlib import Path

from flows.environment import prepare

prepare()

from prefect import flow  # noqa: E402 - the environment comes first

from flows.data import source_change  # noqa: E402
from flows.engines import PrefectEngine, in_flow  # noqa: E402
from flows.enough import check_enough  # noqa: E402
from flows.federate import Summary  # noqa: E402
from flows.federation import Progress  # noqa: E402
from flows.params_file import write_settings  # noqa: E402
from flows.progress import Quiet  # noqa: E402
from flows.runs import require_weights  # noqa: E402
from flows.settings import Settings, load_settings  # noqa: E402
from flows.stages import federate_stage, report_stage  # noqa: E402
from tasks import versioning  # noqa: E402

PARAMS = "params.yaml"


@flow(name="pipeline", persist_result=False)
def pipeline(root: str = ".", overrides: list[str] | None = None) -> None:
    """Brings data, model and report up to date.

    Args:
        root: The DVC repository.
        overrides: ``section.key=value`` texts, written to ``params.yaml`` before anything runs.
    """
    os.chdir(root)
    settings = load_settings(Path(PARAMS), (), overrides or ())
    write_settings(Path(PARAMS), settings)
    run_pipeline_stages(Path.cwd(), settings, Quiet())


def run_pipeline(root: Path, params: Path, progress: Progress) -> Summary:
    """The pipeline for the command line: the same stages in a flow of the same name, with someone to tell."""
    versioning.check_repository(root)
    settings = load_settings(params)
    return in_flow("pipeline", "from the command line", lambda: run_pipeline_stages(root, settings, progress))


def run_pipeline_stages(root: Path, settings: Settings, progress: Progress) -> Summary:
    """The stages in order; what DVC finds up to date is skipped by it, finished rounds by the federation.

    Raises:
        UserError: If this is no DVC repository, or a stage refuses.
    """
    versioning.check_repository(root)
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
            engine.run("dvc-stage", "ingest again", root, stage, True, None, versioning.LOCK_WAIT_S, True)
    summary = federate_stage(settings, progress)
    report_stage(settings)
    engine.run("dvc-record", "record federate and report", root, ["federate", "report"])
    return summary
