"""Where tasks run: in this process, or as Prefect tasks. Both call the same functions and give the same weights."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.core.names import visible
from tasks.registry import is_retryable, policy_of, prefect_task

Call = tuple[str, tuple]  # title, arguments
Done = Callable[[int], None]
Task = str | Callable[..., Any]  # a name in the registry, or a module-level function
MAX_TITLE = 200  # characters of a task run's name in Prefect


@dataclass(frozen=True)
class Outcome:
    """The result of one task: its value, or the error of its last attempt."""

    value: Any = None
    error: BaseException | None = None


class Engine(Protocol):
    """Runs tasks: those of ``tasks/registry.py`` by their name there, other functions as they are."""

    def map(
        self, task: Task, calls: Sequence[Call], timeout_s: float | None = None, done: Done | None = None
    ) -> list[Outcome]:
        """Run one task for several argument tuples, in parallel.

        Args:
            task: Its name in the registry, or the function.
            calls: (title, arguments) of each call.
            timeout_s: Time limit of one call, where the engine can enforce it.
            done: Called with the position of every call that has ended, in the order in which they end.

        Returns:
            The outcomes in the order of the calls.
        """
        ...

    def run(self, task: Task, title: str, *args: Any) -> Any:
        """Run one task and return its value, or raise its error."""
        ...


class LocalEngine:
    """Runs tasks in threads of this process, with the registry's retries.

    Args:
        workers: Tasks at the same time.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(
        self, task: Task, calls: Sequence[Call], timeout_s: float | None = None, done: Done | None = None
    ) -> list[Outcome]:
        """See ``Engine.map``. The tasks enforce the time limit themselves: a thread cannot be stopped."""
        del timeout_s
        with ThreadPoolExecutor(max_workers=self.workers, thread_name_prefix=str(task)[:40]) as pool:
            futures = {pool.submit(self.call, task, args): position for position, (_, args) in enumerate(calls)}
            try:
                for future in as_completed(futures):
                    if done is not None:
                        done(futures[future])
                return [future.result() for future in futures]
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def run(self, task: Task, title: str, *args: Any) -> Any:
        """See ``Engine.run``."""
        del title
        outcome = self.call(task, args)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    @staticmethod
    def call(task: Task, args: tuple) -> Outcome:
        """Call a task's function, with its retries."""
        policy = policy_of(task)
        function = policy.load()
        for delay in (*policy.delays[: policy.retries], None):
            try:
                return Outcome(function(*args))
            except Exception as error:  # every failure of a task is its outcome, as under Prefect
                if delay is None or not is_retryable(error):
                    return Outcome(error=error)
                time.sleep(delay)
        raise AssertionError("unreachable")


class PrefectEngine:
    """Runs tasks as Prefect task runs of the current flow; titles are their names in the UI."""

    def map(
        self, task: Task, calls: Sequence[Call], timeout_s: float | None = None, done: Done | None = None
    ) -> list[Outcome]:
        """See ``Engine.map``; ended calls are reported in the order of the calls."""
        futures = [self._submit(task, title, args, timeout_s) for title, args in calls]
        outcomes = []
        for position, future in enumerate(futures):
            future.wait()
            if done is not None:
                done(position)
            value = future.state.result(raise_on_failure=False)
            outcomes.append(Outcome(error=value) if isinstance(value, BaseException) else Outcome(value))
        return outcomes

    def run(self, task: Task, title: str, *args: Any) -> Any:
        """See ``Engine.run``."""
        return self._submit(task, title, args, None).result()

    @staticmethod
    def _submit(task: Task, title: str, args: tuple, timeout_s: float | None) -> Any:
        options: dict[str, Any] = {"task_run_name": task_run_name(title)}
        if timeout_s is not None:
            options["timeout_seconds"] = timeout_s
        return prefect_task(task).with_options(**options).submit(*args)


def task_run_name(title: str) -> str:
    """Return a title as Prefect takes it: visible, of limited length, and without braces, which hold parameters."""
    shown = visible(title).replace("{", "(").replace("}", ")")
    return shown if len(shown) <= MAX_TITLE else f"{shown[: MAX_TITLE - 1]}…"


def make_engine(name: str, workers: int) -> Engine:
    """Return the engine that ``federation.engine`` names."""
    return PrefectEngine() if name == "prefect" else LocalEngine(workers)
