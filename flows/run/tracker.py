"""A run's way into MLflow. MLflow may go away at any time: that is said once, and never ends a training."""

import getpass
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.engine.engines import Engine
from flows.engine.environment import runs_root
from flows.methods import load_method
from flows.run.open import Run
from flows.run.results import model_factory
from flows.settings.dotted import flat
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.finished_rounds import folder_of
from tasks.core.records import RoundRecord

log = logging.getLogger(__name__)


class Tracker:
    """Logs rounds as they are finished, and what a crash or an outage left out as soon as MLflow answers again.

    Args:
        settings: The run's settings.
        run: The run.
        engine: Where rounds are logged from.
        mlflow_run: The run's id in MLflow; ``None``: nothing is logged.
    """

    def __init__(self, settings: Settings, run: Run, engine: Engine, mlflow_run: str | None) -> None:
        self.settings, self.run, self.engine, self.mlflow_run = settings, run, engine, mlflow_run
        self.behind = True  # earlier rounds may be missing: a process may have been killed before it logged them
        self.away = False

    def round_done(self, record: RoundRecord) -> None:
        """Logs a finished round, and all before it that are missing."""
        if self.behind:
            self.behind = not self._try("log_missing", self.run.root, self.settings.federation.rounds)
            return
        title, folder = f"round {record.round}: track", self.run.root / folder_of(record.round)

        def log_it(*where: Any) -> None:
            self.engine.run("track-round", title, *where, record, folder)

        self.behind = not self._try(log_it)

    def finish(self, records: list[RoundRecord], report: Path) -> None:
        """Logs what is missing, the report, and the last and the best network as MLflow models; closes the run.

        If MLflow is away, what is missing is named with the way to log it later.
        """
        from tasks.core.round_summary import best_round

        best, last = best_round(records), records[-1].round
        models = {
            name: (number, model_factory(self.run.context, records[number - 1].model))
            for name, number in (("best", best), ("last", last))
        }
        logged = self._try("log_missing", self.run.root, last)
        if not (logged and self._try("finish_run", "FINISHED", [report], models)):
            log.warning(
                "MLflow lacks %s of run %s, whose own folder is complete. Once MLflow can be used, run the same "
                "command again: it logs what is missing, without training",
                "the report and the models" if logged else "rounds, the report and the models",
                self.run.id,
            )

    def failed(self) -> None:
        """Marks the MLflow run as failed; the error that ended the run is what the user must see."""
        self._try("finish_run", "FAILED")

    def _try(self, function: str | Callable[..., Any], *arguments: Any) -> bool:
        """Calls a function, or one of ``tasks.tracking.mlflow_runs``; returns whether MLflow accepted it.

        Only the first refusal is logged.
        """
        from tasks.tracking import mlflow_runs
        from tasks.tracking import settings as tracking_settings

        if self.mlflow_run is None:
            return True
        where = self.settings.tracking, runs_root()
        try:
            tracking_settings.check(*where)  # MLflow itself would try one that is away for minutes
            call = getattr(mlflow_runs, function) if isinstance(function, str) else function
            call(*where, self.mlflow_run, *arguments)
        except UserError as error:
            if not self.away:
                log.warning("the run goes on without MLflow: %s", error)
            self.away = True
            return False
        if self.away:
            log.warning("MLflow takes what it is sent again")
        self.away = False
        return True


def open_tracker(settings: Settings, run: Run, tags: dict[str, str], engine: Engine, complete: bool) -> Tracker:
    """The run in MLflow: found by our id on resume, else made.

    Args:
        settings: The run's settings.
        run: The run.
        tags: More tags.
        engine: Where rounds are logged from.
        complete: Nothing is left to train or score, so a run that MLflow has as finished stays as it is.

    Raises:
        UserError: If MLflow cannot be used; nothing has been trained yet, so that can be mended first.
    """
    if not settings.tracking.enabled:
        return Tracker(settings, run, engine, None)
    from tasks.tracking import mlflow_runs
    from tasks.versioning import dvc

    here = Path.cwd()
    commit, dirty = dvc.git_commit(here), dvc.git_dirty(here)
    own = {
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
        "mlflow.note.content": f"{load_method(settings.method.name).TITLE}. Network {settings.model.name}, "
        f"{len(run.clients)} clients, seed {settings.seed}. Report and plots: Artifacts, report/.",
    }
    params = {key: value for key, value in flat(as_values(settings)).items() if not key.startswith("tracking.")}
    rounds = settings.federation.rounds
    found = mlflow_runs.open_run(settings.tracking, runs_root(), run.id, params, own | tags, rounds, complete)
    return Tracker(settings, run, engine, found)


def _data_version(run: Run, here: Path) -> str:
    """DVC's version of the data when the run reads what DVC's stages made, else the digest of the partition."""
    from tasks.versioning import dvc

    versioned = Path(run.context.dataset).resolve() == (here / "data/dataset").resolve()
    return (dvc.data_version(here) if versioned else None) or run.data_digest


def _user() -> str:
    """Who runs this; containers may have a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
