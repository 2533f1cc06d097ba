"""The rounds of a federation: train and aggregate (the method), evaluate, save, track; then the report.

A finished round is never repeated: the same settings and data give the same run folder, and its ``rounds/NNNN`` show
where to continue.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.engine.engines import Engine, make_engine
from flows.federation.evaluation import evaluate_round
from flows.federation.federation import Federation
from flows.federation.progress import Progress
from flows.federation.roll_call import call_roll
from flows.federation.round import Setup
from flows.federation.stop import EndWatch
from flows.methods import load_method
from flows.run.open import Run
from flows.run.results import export
from flows.run.tracker import Tracker, open_tracker
from flows.settings.schema import Settings
from models.errors import UserError
from tasks.core.finished_rounds import finished_rounds, folder_of, prune, rescore_round
from tasks.core.records import RoundRecord
from tasks.core.round_state import RoundState
from tasks.core.round_summary import best_round
from tasks.core.run_end import RunEnd
from tasks.core.store import Store
from tasks.data.ingest.unusable_files import unusable


@dataclass(frozen=True)
class FederationJob:
    """All that the rounds of one run need.

    Attributes:
        settings: Effective settings.
        run: The open run.
        progress: Notified of stages and rounds.
        out: Folder for the small outputs that DVC records; ``None`` leaves them out.
        tags: More tags for MLflow.
    """

    settings: Settings
    run: Run
    progress: Progress
    out: Path | None
    tags: dict[str, str]

    @cached_property
    def engine(self) -> Engine:
        """Where tasks run."""
        return make_engine(self.settings.federation.engine, self.settings.federation.workers)

    @property
    def rounds(self) -> int:
        """Number of the last round that is asked for."""
        return self.settings.federation.rounds

    @cached_property
    def watch(self) -> EndWatch:
        """What ends the run before that."""
        context = self.run.context
        return EndWatch(
            self.settings.federation.stop, context.problem.primary_metric, context.evaluation.every, self.store
        )

    @property
    def store(self) -> Store:
        """The run's folder."""
        return Store(self.run.root)


@dataclass(frozen=True)
class Summary:
    """The result of a federation.

    Attributes:
        run_id: The run's id, the name of its folder.
        digest: sha256 over the final global model's tensors in name order.
        rounds: Finished rounds.
        metrics: The last round's metrics on the pooled test set.
        mlflow_run_id: The run in MLflow, ``None`` without tracking.
        report: Path of the report.
        root: The run's folder.
        records: Every round.
        data: Unused parts of the source: ``tasks.data.ingest.unusable_files.unusable``, and the data set's folder.
        stopped: Why the run ended before its last round, ``None`` if it did not.
    """

    run_id: str
    digest: str
    rounds: int
    metrics: dict[str, float]
    mlflow_run_id: str | None
    report: str
    root: str
    records: list[RoundRecord] = field(repr=False)
    data: dict[str, Any] = field(default_factory=dict)
    stopped: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without the rounds' records."""
        return {key: value for key, value in asdict(self).items() if key != "records"}


def run_federation(job: FederationJob) -> Summary:
    """Train the rounds that are missing, then write the report. This is the body of the Prefect flow ``federate``."""
    finished, end = take_finished_rounds(job)
    with start_tracking(job, finished, end) as tracker:
        records, end = train_rounds(job, finished, tracker, end)
        report = write_report(job, records[-1])
    tracker.finish(records, report, end.reason if end else None)
    if job.out is not None:
        export(job.run, job.settings, records, report, job.out)
    return summarise(job, records, report, tracker, end)


def take_finished_rounds(job: FederationJob) -> tuple[list[RoundRecord], RunEnd | None]:
    """Return the rounds that earlier processes finished, up to the last one that is asked for, and an end among them.

    The end is that of ``federation.stop``; rounds after it are left out.
    """
    records = finished_rounds(job.store, job.rounds)
    end = job.watch.found(records)
    records = records if end is None else records[: end.round]
    last = end.round if end else job.rounds
    if job.store.exists(folder_of(last + 1)):
        job.progress.note(
            f"more rounds are finished; results, report and MLflow are those of {len(records)}, as asked for"
        )
    return records, end


def start_tracking(job: FederationJob, finished: list[RoundRecord], end: RunEnd | None) -> Tracker:
    """Open the run in MLflow, or nothing with ``tracking.enabled: false``."""
    last = end.round if end else job.rounds
    complete = len(finished) == last and bool(finished[-1].metrics)
    return open_tracker(job.settings, job.run, job.tags, job.engine, complete, job.progress, last)


def train_rounds(
    job: FederationJob, finished: list[RoundRecord], tracker: Tracker, end: RunEnd | None = None
) -> tuple[list[RoundRecord], RunEnd | None]:
    """Return all rounds, the finished ones and those that are trained, saved and tracked here, and an early end."""
    method = load_method(job.settings.method.name)
    last = end.round if end else job.rounds
    records = [*finished[:-1], *(evaluate_last_round(job, record, last) for record in finished[-1:])]
    for record in records:
        job.progress.round_done(record, found=True)
    if job.settings.federation.required and len(records) < last:
        job.progress.stage(0, "roll call", len(job.settings.federation.required))
        call_roll(job.engine, job.run.context, job.settings.federation.required)
    setup = Setup(
        job.run.context,
        job.settings.federation,
        job.settings.method.name,
        job.settings.method.chosen,
        job.run.clients,
        job.engine,
        job.progress,
        job.run.unlabelled,
        job.run.server_images,
    )
    state = records[-1].state if records else initial_state(job)
    for number in range(len(records) + 1, last + 1):
        before = records[-1] if records else None
        record = one_round(Federation(setup, number, state, before), method.run_round, job.run.root, job.rounds)
        end = job.watch.after([*records, record])
        if end is not None:
            record = evaluate_last_round(job, record, number)
        records.append(record)
        prune(job.store, record, best_to_keep(job, records))
        tracker.round_done(record)
        job.progress.round_done(record)
        state = record.state
        if end is not None:
            break
    if not job.store.exists(folder_of(records[-1].round + 1)):
        prune(job.store, records[-1], best_to_keep(job, records))  # a process may have been killed before it did
    if end is not None and end.round < job.rounds:
        job.progress.note(f"the run has ended after round {end.round} of {job.rounds}: {end.reason}")
    return records, end


def best_to_keep(job: FederationJob, records: Sequence[RoundRecord]) -> RoundRecord | None:
    """Return the best round so far where its personal models are to be logged when the run ends, else ``None``."""
    return records[best_round(records) - 1] if job.settings.tracking.site_models == "best" else None


def initial_state(job: FederationJob) -> RoundState:
    """Return the state before the first round: one global model."""
    return RoundState.starting_from(job.engine.run("initialise-model", "initial global model", job.run.context))


def one_round(
    fed: Federation, run_round: Callable[[Federation, RoundState], RoundState], root: Path, rounds: int = 0
) -> RoundRecord:
    """Run one round of a method: its stages, the evaluation of the result, and the finished folder.

    Args:
        fed: The round.
        run_round: The method.
        root: The run's folder.
        rounds: Number of the last round, which is evaluated whatever ``evaluation.every`` says.
    """
    fed.is_evaluated = fed.number % fed.context.evaluation.every == 0 or fed.number == rounds
    fed.record.state = run_round(fed, fed.state)
    note_unused_tensors(fed)
    if fed.is_evaluated:
        fed.progress.stage(fed.number, "evaluate", 0)
        evaluate_round(fed.engine, fed.context, fed.settings, fed.record, fed.clients)
    saved: RoundRecord = fed.engine.run("save-round", f"round {fed.number}: save", str(root), fed.record)
    return saved


def note_unused_tensors(fed: Federation) -> None:
    """Note which clients kept tensors of their models that the method's state does not declare as their own."""
    if unused := sorted(fed.keeping.keys() - set(fed.record.state.personalised)):
        prefixes = sorted({prefix for client in unused for prefix in fed.keeping[client]})
        fed.note(
            f"{', '.join(unused)} kept {', '.join(prefixes)}, which is neither evaluated nor exported, as the method "
            "does not set state.own for them"
        )


def evaluate_last_round(job: FederationJob, record: RoundRecord, last: int) -> RoundRecord:
    """Evaluate a finished round if it is the last one and was not evaluated when it was trained.

    Args:
        job: The federation.
        record: The round.
        last: Number of the last round.

    Raises:
        UserError: If the clients' personal models of that round are gone.
    """
    if record.round != last or record.metrics:
        return record
    job.progress.stage(record.round, "evaluate", 0)
    store = job.run.context.open_store()
    own = record.state.at_clients if record.state.personalised else []
    gone = [ref.uri for ref in own if not store.holds(ref)]
    if gone:
        every = job.settings.evaluation.every
        raise UserError(
            f"round {record.round} was not evaluated when it was trained, and its clients' personal models are gone",
            where="federation.rounds",
            expected=f"a round that was evaluated (evaluation.every is {every}), or the last one",
            found=record.round,
            hint="choose such a round, or another --run-id to train it again",
        )
    evaluate_round(job.engine, job.run.context, job.settings.federation, record, job.run.clients)
    return rescore_round(str(job.run.root), record)


def write_report(job: FederationJob, last: RoundRecord) -> Path:
    """Write the run's report and return its folder."""
    out = job.run.root / "report"
    job.progress.stage(0, "report", 0)
    model = last.state.evaluated_model
    if model is not None:
        job.engine.run("sample-predictions", "score images for the report", job.run.context, model)
    job.engine.run("report", "report", job.run.root, out, job.settings.report)
    return out


def summarise(
    job: FederationJob, records: list[RoundRecord], report: Path, tracker: Tracker, end: RunEnd | None = None
) -> Summary:
    """Return what the caller shows of a finished federation."""
    last, dataset = records[-1], job.run.context.dataset
    return Summary(
        run_id=job.run.id,
        digest=last.state.digest,
        rounds=last.round,
        metrics=last.metrics,
        mlflow_run_id=tracker.run_id,
        report=str(report / "report.md"),
        root=str(job.run.root),
        records=records,
        data={"dataset": dataset, **unusable(Path(dataset))},
        stopped=end.reason if end else None,
    )
