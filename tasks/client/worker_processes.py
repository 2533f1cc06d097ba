"""Resident worker processes: Python threads share one interpreter, processes do not.

A process is started for each slot when it is first needed and keeps what it has loaded: modules, the data set's memory
map, networks. One that is killed costs the call that it had; the next call in its slot starts a new one.
"""

import contextlib
import multiprocessing
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, ParamSpec, TypeVar

from tasks.client.stopping import TrainingStopped, stop_training
from tasks.core.processes import follow_parent

P = ParamSpec("P")
Result = TypeVar("Result")
# Loaded once, then shared by all workers; the first optimiser of a process imports torch._dynamo.
PRELOADED = ["torch", "torch._dynamo", "safetensors.torch", "tasks.client.local_training"]
_FORKSERVER = "forkserver" in multiprocessing.get_all_start_methods()


class WorkerKilledError(OSError):
    """A worker process ended in the middle of a call; another one may succeed."""


class Worker:
    """One process that does one call at a time."""

    def __init__(self) -> None:
        context = get_context("forkserver") if _FORKSERVER else get_context("spawn")
        self._connection, its_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(its_end,), daemon=True)
        self._process.start()
        its_end.close()  # so that its end of the process is the end of the connection

    @property
    def pid(self) -> int | None:
        """Return the process's id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.is_alive()

    def call(self, function: Callable[..., Result], args: Sequence[Any]) -> Result:
        """Call a module-level function in the process.

        Raises:
            WorkerKilledError: If the process ends before it has answered.
            TrainingStopped: If it was ended by Ctrl-C.
            Exception: What the function raised.
        """
        try:
            self._connection.send((function, args))
            wait([self._connection, self._process.sentinel])
            if not self._connection.poll():
                raise EOFError
            succeeded, value = self._connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._process.join()
            if stop_training.is_set():
                raise TrainingStopped from error
            raise WorkerKilledError(
                f"its worker process ended with exit code {self._process.exitcode}, killed or out of memory"
            ) from error
        if not succeeded:
            raise value
        result: Result = value
        return result

    def kill(self) -> None:
        """End the process, in the middle of a call if need be."""
        self._process.kill()
        self._process.join()


class WorkerPool:
    """A number of slots with a worker each.

    Args:
        slots: Calls at the same time; more wait.
    """

    def __init__(self, slots: int) -> None:
        self.workers: list[Worker | None] = [None] * slots
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._free.put(slot)
        if _FORKSERVER:  # it loads modules while this process prepares data
            get_context("forkserver").set_forkserver_preload(PRELOADED)
            forkserver.ensure_running()

    def call(self, function: Callable[..., Result], args: Sequence[Any]) -> Result:
        """Call a module-level function in a free worker; wait for one if none is free. Errors: see ``Worker.call``."""
        slot = self._free.get()
        try:
            worker = self.workers[slot]
            if worker is None or not worker.alive:
                worker = self.workers[slot] = Worker()
            return worker.call(function, args)
        finally:
            self._free.put(slot)

    def close(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            if worker is not None:
                worker.kill()


_pool: WorkerPool | None = None


@contextlib.contextmanager
def worker_processes(slots: int | None) -> Iterator[WorkerPool | None]:
    """Let tasks that are made for it run in worker processes, inside the block.

    Args:
        slots: Number of processes; ``None``: none, tasks run in threads of this process.
    """
    global _pool
    if slots is None:
        yield None
        return
    before, _pool = _pool, WorkerPool(slots)
    pool = _pool
    try:
        yield pool
    finally:
        _pool = before
        pool.close()


def in_worker(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return a function that runs in a worker process where there are any, else here."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        if _pool is None or kwargs:
            return function(*args, **kwargs)
        return _pool.call(function, args)

    return run


def _serve(connection: Connection) -> None:
    """Answer calls until the other end is closed."""
    follow_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent ends its workers
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, function(*args))
        except Exception as error:  # every error is the caller's
            error.add_note(f"in worker process {multiprocessing.current_process().pid}:\n{traceback.format_exc()}")
            answer = (False, error)
        try:
            connection.send(answer)
        except Exception as error:  # it cannot be pickled; nothing was sent
            connection.send((False, RuntimeError(f"{answer[1]!r} cannot be sent to the main process: {error}")))
