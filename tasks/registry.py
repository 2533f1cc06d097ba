"""Every task of FedScene with its policy: name, retries and tags.

The functions are plain and can be called without an engine. With ``federation.engine: prefect`` they run as
Prefect tasks, which ``prefect_task`` creates; no other module under ``tasks`` imports Prefect, and this one only then.
Time limits depend on the number of clients, so the engine gets them with each call.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.client.stopping import TrainingStopped
from tasks.client.worker_processes import in_worker
from tasks.core.names import visible_lines

if TYPE_CHECKING:
    from prefect import Task


@dataclass(frozen=True)
class Policy:
    """How one task runs.

    Attributes:
        function: ``module:function`` of the plain function.
        about: What it does, one line; shown in the Prefect UI.
        retries: Number of retries after a failure that may be temporary.
        delays: Seconds before each retry.
        tags: Prefect tags. ``gpu`` takes a slot of the server's concurrency limit of that name, if there is one
            (``prefect concurrency-limit create gpu 1``).
        in_worker: Whether it runs in a worker process where the run has some (``tasks.client.worker_processes``).
    """

    function: str
    about: str
    retries: int = 0
    delays: tuple[float, ...] = ()
    tags: tuple[str, ...] = ()
    in_worker: bool = False

    def load(self) -> Callable[..., Any]:
        """Return the function, as a call of a worker process if it is made for that."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return in_worker(function) if self.in_worker else function


TASKS: dict[str, Policy] = {
    "initialise-model": Policy("tasks.server.initial_model:initial_model", "Create or load the first global model."),
    "answer-roll-call": Policy(
        "tasks.client.roll_call:answer_roll_call", "A required client opens its data.", retries=1, delays=(1.0,)
    ),
    "train-clients": Policy(
        "tasks.client.train_chunk:train_clients",
        "Local training of a chunk of clients, each on its own images.",
        retries=2,
        delays=(1.0, 5.0),
        tags=("gpu",),
        in_worker=True,
    ),
    "evaluate-clients": Policy(
        "tasks.evaluation.client_losses:evaluate_client_losses",
        "Evaluate a model at every client, on its own images.",
        retries=1,
        delays=(1.0,),
        tags=("gpu",),
        in_worker=True,
    ),
    "compress-model": Policy(
        "tasks.server.downlink:compress_model",
        "Compress a model on its way to clients.",
        retries=1,
        delays=(1.0,),
    ),
    "check-updates": Policy("tasks.server.validate_updates:check_updates", "Validate updates before aggregation."),
    "transform-updates": Policy(
        "tasks.server.transform_updates:transform_updates",
        "Transform updates before aggregation.",
        retries=1,
        delays=(1.0,),
    ),
    "aggregate": Policy(
        "tasks.server.aggregate:aggregate", "Combine updates by an aggregator.", retries=1, delays=(1.0,)
    ),
    "evaluate": Policy(
        "tasks.evaluation.evaluate:evaluate_shared",
        "Evaluate a model on the pooled test set.",
        retries=1,
        delays=(1.0,),
        tags=("gpu",),
    ),
    "evaluate-own-models": Policy(
        "tasks.evaluation.evaluate:evaluate_clients",
        "Evaluate a chunk of clients' models by the run's protocols.",
        retries=1,
        delays=(1.0,),
        tags=("gpu",),
        in_worker=True,
    ),
    "save-round": Policy(
        "tasks.core.finished_rounds:save_round", "Store the finished round.", retries=1, delays=(1.0,)
    ),
    "track-round": Policy(
        "tasks.tracking.mlflow_runs:log_round", "Log a finished round to MLflow.", retries=2, delays=(1.0, 5.0)
    ),
    "dvc-stage": Policy("tasks.versioning.dvc:repro", "Bring one DVC stage up to date."),
    "dvc-record": Policy("tasks.versioning.dvc:commit", "Record the outputs of stages in dvc.lock."),
    "sample-predictions": Policy(
        "tasks.report.sample_predictions:sample_predictions", "Predict the images that the report shows."
    ),
    "report": Policy("tasks.report.sample_predictions:report_with_predictions", "Write a run's tables and plots."),
}


def policy_of(task: str | Callable[..., Any]) -> Policy:
    """Return the policy of a task of ``TASKS``, or of a method's server step: a module-level function.

    A server step finds its own finished output, so it is tried once more after a failure that may pass.
    """
    if isinstance(task, str):
        return TASKS[task]
    about = (task.__doc__ or "").partition("\n")[0]
    return Policy(f"{task.__module__}:{task.__qualname__}", about, retries=1, delays=(1.0,))


def is_retryable(error: BaseException) -> bool:
    """Return whether a retry can help: never after a user error, nor after Ctrl-C."""
    return isinstance(error, Exception) and not isinstance(error, UserError | TrainingStopped)


@cache
def prefect_task(task_: str | Callable[..., Any]) -> "Task":
    """Return the Prefect task of a name in ``TASKS``, or of a method's server step.

    Prefect neither persists nor caches results: every function finds its own finished output.
    """
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    logging.getLogger("prefect.task_runs").addFilter(_is_no_timeout_warning)
    policy = policy_of(task_)
    name = task_ if isinstance(task_, str) else task_.__name__.replace("_", "-")
    function = policy.load()
    retries: dict[str, Any] = {}
    if policy.retries:
        retries = {
            "retries": policy.retries,
            "retry_delay_seconds": list(policy.delays),
            "retry_condition_fn": _retry_condition,
        }

    @task(
        name=name,
        description=policy.about,
        tags=set(policy.tags),
        cache_policy=NO_CACHE,
        persist_result=False,
        **retries,
    )
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            return failed_state(error, error)

    return run


def _retry_condition(_task: Any, _run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return is_retryable(error) if isinstance(error, BaseException) else True


def _is_no_timeout_warning(record: logging.LogRecord) -> bool:
    """Filter out the warning, one per task, that a time limit cannot interrupt a blocking call in a thread.

    Clients check their time between steps (``TrainingError``); Prefect's limit is the second safeguard.
    """
    return "running in a worker thread" not in record.getMessage()


_failures: deque[str] = deque(maxlen=100)


def failed_state(error: UserError, data: object = None) -> Any:
    """Return a failed Prefect state instead of raising: no traceback before the message, and the message once."""
    from prefect.states import Failed

    message = visible_lines(error)
    _failures.append(repr(message))
    for name in ("prefect.task_runs", "prefect.flow_runs"):
        logging.getLogger(name).addFilter(_is_no_repetition)
    return Failed(message=message, data=data)


def _is_no_repetition(record: logging.LogRecord) -> bool:
    """Filter out Prefect's own lines about a user error, which the command line or the flow reports itself."""
    text = record.getMessage()
    return not any(message in text for message in _failures)
