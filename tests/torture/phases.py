"""The phases of a run in which it is killed: what is done, and what must exist after the restart."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from events import Events

from flows.settings.files import load_settings
from flows.settings.schema import Settings

ROUNDS = 2
SETS = (
    "ingest.synthetic.images=24", "ingest.synthetic.sites=2", "ingest.image_size=32", "partition.scheme=iid",
    "partition.clients=2", "partition.min_size=2", "model.name=resnet18", "model.backbone.width=0.125",
    "objective.name=bce", "train.epochs=1", "train.batch_size=8", "report.images=2", "federation.workers=1",
    f"federation.rounds={ROUNDS}",
)  # fmt: skip
PHASES = ("database", "data", "start", "rounds", "end")


@dataclass(frozen=True)
class Phase:
    """A phase of a run.

    Attributes:
        name: database, data, start, rounds or end.
        method: The federated method.
    """

    name: str
    method: str

    @property
    def settings(self) -> Settings:
        """Settings of the run; models are logged in the phase ``end`` only."""
        models = str(self.name == "end").lower()
        sets = [*SETS, f"method.name={self.method}", f"tracking.log_models={models}"]
        return load_settings(None, ["tiny"], sets)

    def work(self, events: Events, runs: Path) -> dict[str, Any]:
        """Run the phase in a child process with ``FEDSCENE_RUNS`` at ``runs``; return what is compared."""
        if self.name == "database":
            return self._database(events, runs)
        if self.name == "data":
            return self._data(events)
        return self._run(events)

    def _database(self, events: Events, runs: Path) -> dict[str, Any]:
        from tasks.tracking import mlflow_runs

        events.armed = True
        mlflow_runs.open_run(self.settings.tracking, runs, "r", {"a": 1}, {"fedscene.run_id": "r"})
        events.armed = False
        return {"runs": 1}

    def _data(self, events: Events) -> dict[str, Any]:
        from flows.run.prepare_data import prepare_data
        from tasks.data.clients import load_clients
        from tasks.data.dataset import load_dataset

        events.armed = True
        data = prepare_data(self.settings)
        events.armed = False
        return {"dataset": load_dataset(data.dataset).digest, "clients": load_clients(data.clients).digest}

    def _run(self, events: Events) -> dict[str, Any]:
        from flows.federate import federate
        from flows.federation.progress import Quiet
        from flows.run.prepare_data import prepare_data

        class Watch(Quiet):
            """Arms and disarms the events where the phase begins and ends."""

            def stage(self, round_: int, name: str, clients: int) -> None:
                if name == "report":
                    events.armed = phase == "end"

            def round_done(self, record, found=False) -> None:
                if (phase, record.round) in (("start", 1), ("rounds", ROUNDS)):
                    events.armed = False

        phase = self.name
        data = prepare_data(self.settings)
        events.armed = phase == "start"
        summary = federate(self.settings, data, run_id="r", progress=Watch())
        events.armed = False
        return {"digest": summary.digest, "rounds": summary.rounds, "mlflow": summary.mlflow_run_id}


def faults(phase: Phase, runs: Path, result: dict[str, Any], wanted: dict[str, Any], files: list[str]) -> list[str]:
    """Return what differs after a kill and a restart; ``files`` are those of an undisturbed run."""
    found = [f"{key} differs" for key in wanted if key != "mlflow" and result.get(key) != wanted[key]]
    now = listing(runs)
    found += [f"left over: {name}" for name in now if name not in files]
    found += [f"missing: {name}" for name in files if name not in now]
    if phase.name != "data":
        found += _database_faults(phase, runs)
    return found


def _database_faults(phase: Phase, runs: Path) -> list[str]:
    with sqlite3.connect(runs / "mlflow.db") as database:
        found = [f"database: {line}" for (line,) in database.execute("PRAGMA integrity_check") if line != "ok"]
        our_runs = database.execute("SELECT run_uuid, status FROM runs WHERE experiment_id != 0").fetchall()
        if len(our_runs) != 1:
            return [*found, f"{len(our_runs)} runs in MLflow"]
        if phase.name == "database":
            return found
        for key in ("round", "macro_ap"):
            steps = [step for (step,) in database.execute("SELECT step FROM metrics WHERE key = ? ORDER BY 1", (key,))]
            found += [f"{key} at steps {steps}"] if steps != list(range(1, ROUNDS + 1)) else []
        if our_runs[0][1] != "FINISHED":
            found.append(f"the run is {our_runs[0][1]} in MLflow")
        models = database.execute("SELECT status FROM logged_models WHERE lifecycle_stage = 'active'").fetchall()
        if len(models) > 2 or any(status != 2 for (status,) in models) or (phase.name == "end") != bool(models):
            found.append(f"models in MLflow: {models}")
    return found


def listing(runs: Path) -> list[str]:
    """Return the files of a folder of runs, without lock files and names that MLflow generates."""
    names = (path.relative_to(runs).as_posix() for path in runs.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.startswith("mlartifacts/") and not name.endswith(".lock"))


def make_cheap(phase: Phase) -> None:
    """Replace slow parts that the phase does not test: plots are drawn in the phase ``end`` only."""
    if phase.name in ("start", "rounds"):
        from tasks.report import sample_predictions

        def report(_root: Path, out: Path, *_: Any) -> None:
            out.mkdir(exist_ok=True)
            (out / "report.md").write_text("a report")

        sample_predictions.report_with_predictions = report
        sample_predictions.sample_predictions = lambda *_: None


def template(phase: Phase, folder: Path, base: Path | None, child: Callable[..., Any]) -> None:
    """Create what exists before the phase: a database, data, finished rounds."""
    folder.mkdir(parents=True)
    if phase.name in ("database", "data"):
        return
    if base is not None:
        shutil.copytree(base, folder, dirs_exist_ok=True)
    if phase.name == "end":  # the rounds are finished and tracked
        done = child(Phase("rounds", phase.method), folder, None, False)
        assert done.result is not None, done.output
        shutil.rmtree(folder / "r" / "report")


def as_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(value, sort_keys=True)
