"""A run's connection to MLflow. MLflow may become unreachable at any time: one warning, and training continues."""

import getpass
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from flows.engine.engines import Engine
from flows.engine.environment import runs_root
from flows.federation.progress import Progress
from flows.methods import load_method
from flows.run.open import Run
from flows.run.results import model_factory
from flows.settings.dotted import flat
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.finished_rounds import folder_of
from tasks.core.records import RoundRecord
from tasks.evaluation.thresholds import thresholds_of

log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Logs a run. As a context manager it marks the run as failed when an error ends the block.

    Attributes:
        run_id: The run's id in MLflow, ``None`` without tracking.
    """

    run_id: str | None

    def round_done(self, record: RoundRecord) -> None:
        """Log a finished round."""
        ...

    def finish(self, records: Sequence[RoundRecord], report: Path, stopped: str | None = None) -> None:
        """Log the report and the models of a finished run, and why it ended early if it did."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


class NullTracker:
    """Logs nothing: ``tracking.enabled: false``."""

    run_id: str | None = None

    def round_done(self, record: RoundRecord) -> None:
        """Do nothing."""

    def finish(self, records: Sequence[RoundRecord], report: Path, stopped: str | None = None) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Do nothing."""


class MlflowTracker:
    """Logs rounds as they finish; what a crash or an outage left out follows as soon as MLflow is reachable again.

    Args:
        settings: The run's settings.
        run: The run.
        engine: Where rounds are logged from.
        run_id: The run's id in MLflow.
        progress: Notified when models and report are logged.
    """

    def __init__(self, settings: Settings, run: Run, engine: Engine, run_id: str, progress: Progress) -> None:
        self.settings, self.run, self.engine, self.progress = settings, run, engine, progress
        self.run_id: str | None = run_id
        self._target = settings.tracking, runs_root(), run_id
        self._incomplete = True  # a process may have been killed before it logged earlier rounds
        self._unreachable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Mark the MLflow run as failed after an error; the user must see that error, not one of MLflow."""
        from tasks.tracking import mlflow_runs

        if kind is not None:
            self._send(mlflow_runs.finish_run, "FAILED")

    def round_done(self, record: RoundRecord) -> None:
        """Log a finished round, and all before it that are missing."""
        from tasks.tracking import mlflow_runs

        if self._incomplete:
            self._incomplete = not self._send(mlflow_runs.log_missing, self.run.root, self.settings.federation.rounds)
            return
        title, folder = f"round {record.round}: track", self.run.root / folder_of(record.round)

        def as_a_task(*target: Any) -> None:
            self.engine.run("track-round", title, *target, record, folder)

        self._incomplete = not self._send(as_a_task)

    def finish(self, records: Sequence[RoundRecord], report: Path, stopped: str | None = None) -> None:
        """Log what is missing, the report, the last and the best network and the sites' models; close the run.

        If MLflow is unreachable, a warning names what is missing and how to log it later.
        """
        from tasks.core.round_summary import best_round
        from tasks.tracking import mlflow_runs

        self.progress.stage(0, "models and report to MLflow", 0)
        best, last = best_round(records), records[-1].round
        found = (
            (name, number, records[number - 1].state.evaluated_model)
            for name, number in (("best", best), ("last", last))
        )
        models = {
            name: (number, model_factory(self.run.context, ref, thresholds_of(records[number - 1].per_class)))
            for name, number, ref in found
            if ref
        }
        lacking = ["rounds", "the report", "the models"]
        if self._send(mlflow_runs.log_missing, self.run.root, last):
            lacking = [] if self._log_sites(records) else ["models of sites"]
            lacking += [] if self._send(mlflow_runs.finish_run, "FINISHED", [report], models, stopped) else [
                "the report", "the models"
            ]  # fmt: skip
        if lacking:
            log.warning(
                "MLflow lacks %s of run %s, whose own folder is complete. Once MLflow can be used, run the same "
                "command again: it logs what is missing, without training",
                " and ".join(filter(None, (", ".join(lacking[:-1]), lacking[-1]))),
                self.run.id,
            )

    def _log_sites(self, records: Sequence[RoundRecord]) -> bool:
        """Log the models of the sites if ``tracking.site_models`` asks for them; return whether MLflow has them."""
        which = self.settings.tracking.site_models
        if which == "none":
            return True
        from flows.run.site_models import chosen_record, missing_line, site_models
        from tasks.tracking.site_models import log_site_models

        record, sites = chosen_record(records, which), sorted(self.run.clients)
        if not record.state.personalised:
            name = self.settings.method.name
            self.progress.note(f"tracking.site_models is {which}, but with {name} no site has a model of its own")
            return True
        models, missing = site_models(self.run.context, self.settings.ingest.resize, record, sites)
        if missing:
            self.progress.note(f"not logged as MLflow models: {missing_line(missing)}")
        self.progress.stage(0, "models of sites to MLflow", len(models))
        logged: list[str] = []

        def count(site: str) -> None:
            logged.append(site)
            self.progress.clients_done(len(logged))

        return self._send(log_site_models, models, count)

    def _send(self, function: Callable[..., Any], *arguments: Any) -> bool:
        """Call ``function`` with this run in MLflow and return whether MLflow accepted it.

        Only the first refusal is logged.
        """
        from tasks.tracking.availability import check_available

        settings, root, _ = self._target
        try:
            check_available(settings, root)  # MLflow itself would retry an unreachable server for minutes
            function(*self._target, *arguments)
        except UserError as error:
            if not self._unreachable:
                log.warning("the run continues without MLflow: %s", error)
            self._unreachable = True
            return False
        if self._unreachable:
            log.warning("MLflow is reachable again")
        self._unreachable = False
        return True


def require_tracking(settings: Settings) -> None:
    """Check that MLflow can be used, before any work starts.

    Raises:
        UserError: If tracking is enabled and its store cannot be used.
    """
    from tasks.tracking.availability import check_available

    if settings.tracking.enabled:
        check_available(settings.tracking, runs_root())


def open_tracker(
    settings: Settings,
    run: Run,
    tags: dict[str, str],
    engine: Engine,
    complete: bool,
    progress: Progress,
    last: int,
) -> Tracker:
    """Open the run in MLflow: the one with our run id on resume, else a new one.

    Args:
        settings: The run's settings.
        run: The run.
        tags: More tags.
        engine: Where rounds are logged from.
        complete: Nothing is left to train or evaluate, so a run that MLflow has as finished stays as it is.
        progress: Notified when models and report are logged.
        last: Number of the run's last round.

    Raises:
        UserError: If MLflow cannot be used; nothing has been trained yet.
    """
    if not settings.tracking.enabled:
        return NullTracker()
    from tasks.tracking.mlflow_runs import open_run

    params = {key: value for key, value in flat(as_values(settings)).items() if not key.startswith("tracking.")}
    tags = _run_tags(settings, run) | tags
    run_id = open_run(settings.tracking, runs_root(), run.id, params, tags, last, complete)
    return MlflowTracker(settings, run, engine, run_id, progress)


def _run_tags(settings: Settings, run: Run) -> dict[str, str]:
    """Return what identifies a run: its id, data, code, method and user."""
    from tasks.versioning import dvc

    here = Path.cwd()
    commit, dirty = dvc.git_commit(here), dvc.git_dirty(here)
    return {
        "fedscene.run_id": run.id,
        "fedscene.data_version": _data_version(run, here),
        "fedscene.data_digest": run.data_digest,
        "fedscene.git_commit": commit or "none",
        "fedscene.git_dirty": str(dirty).lower(),
        "fedscene.seed": str(settings.seed),
        "fedscene.method": settings.method.name,
        "fedscene.fingerprint": run.context.fingerprint,
        "fedscene.device": run.context.device,
        "mlflow.user": _user(),
        "mlflow.source.name": "fedscene",
        "mlflow.note.content": f"{load_method(settings.method.name).DESCRIPTION}. Network {settings.model.name}, "
        f"{len(run.clients)} clients, seed {settings.seed}. Report and plots: Artifacts, report/.",
    }


def _data_version(run: Run, here: Path) -> str:
    """Return DVC's version of the data if the run reads the outputs of DVC's stages, else the partition's digest."""
    from tasks.versioning import dvc

    versioned = Path(run.context.dataset).resolve() == (here / "data/dataset").resolve()
    return (dvc.data_version(here) if versioned else None) or run.data_digest


def _user() -> str:
    """Return the user's name; containers may have a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
