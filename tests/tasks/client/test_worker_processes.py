"""Calls in worker processes: results, errors, and what the death of a process costs."""

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

from flows.engine.engines import LocalEngine
from models.errors import UserError
from tasks.client.worker_processes import WorkerKilledError, WorkerPool, in_worker, worker_processes
from tasks.core.store import Store
from tests.support.jobs import train_job
from tests.support.rounds import NARROW

pytestmark = pytest.mark.integration


def refuse(found):
    raise UserError("refused", where="here", found=found)


def unsendable():
    return lambda: None


@pytest.fixture(scope="module")
def pool():
    pool = WorkerPool(2)
    yield pool
    pool.close()


def test_a_call_runs_elsewhere(pool):
    assert pool.call(os.getpid, ()) not in (os.getpid(), None)


def test_a_worker_stays(pool):
    assert len({pool.call(os.getpid, ()) for _ in range(6)}) <= 2


def test_an_error_is_the_callers(pool):
    with pytest.raises(UserError) as caught:
        pool.call(refuse, ("that",))
    assert (caught.value.where, caught.value.found) == ("here", "that")


def test_an_unexpected_error_shows_where_it_was_raised(pool):
    with pytest.raises(ValueError, match="invalid literal") as caught:
        pool.call(int, ("x",))
    assert "in worker process" in caught.value.__notes__[0]
    assert "Traceback" in caught.value.__notes__[0]


def test_a_result_that_cannot_be_sent_is_an_error(pool):
    with pytest.raises(RuntimeError, match="cannot be sent"):
        pool.call(unsendable, ())
    assert pool.call(os.getpid, ())


def test_an_argument_that_cannot_be_sent_is_an_error(pool):
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pool.call(str, (lambda: None,))
    assert pool.call(os.getpid, ())


def test_a_killed_worker_is_replaced(pool):
    with pytest.raises(WorkerKilledError, match="-9"):
        pool.call(os.kill, (pool.call(os.getpid, ()), signal.SIGKILL)) or pool.call(time.sleep, (60,))
    assert pool.call(os.getpid, ())


def test_calls_run_at_the_same_time(pool):
    found = []
    threads = [threading.Thread(target=lambda: found.append(pool.call(os.getpid, ()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4


def test_without_workers_a_call_stays_here():
    with worker_processes(None) as none:
        assert none is None
        assert in_worker(os.getpid)() == os.getpid()


def test_workers_end_with_the_block():
    with worker_processes(1) as pool:
        pid = in_worker(os.getpid)()
        assert pid == pool.workers[0].pid != os.getpid()
    assert in_worker(os.getpid)() == os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def digests(run, clients, kill_after=None, killed=None):
    """Train clients in two processes; return their updates' digests. After ``kill_after`` seconds one is killed."""
    context, start = run
    calls = [(client, (context, [train_job(client, 1, 1, start)], 2)) for client in clients]
    with worker_processes(2) as pool:
        timer = threading.Timer(kill_after or 0, lambda: kill_one(pool, killed))
        if kill_after is not None:
            timer.start()
        outcomes = LocalEngine(2).map("train-clients", calls)
        timer.cancel()
    return [outcome.value[0][0].model.digest for outcome in outcomes]


def kill_one(pool, killed):
    for worker in pool.workers:
        if worker is not None and worker.alive:
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(worker.pid)
            return


def test_a_worker_killed_at_any_instant_changes_no_result(make_run, tiny_data, monkeypatch):
    """SIGKILL at ten seeded instants: its client is trained again by another process."""
    monkeypatch.setattr(time, "sleep", lambda _: None)  # no wait before a retry
    clients, how = tiny_data.ids[:2], {"objective": "bce", "network": NARROW, "train": {"epochs": 5}}
    digests(make_run("loads", **how), clients)
    began = time.monotonic()
    expected = digests(make_run("undisturbed", **how), clients)
    seconds = time.monotonic() - began
    killed = []
    for number, share in enumerate(np.random.default_rng(7).uniform(0.05, 0.8, 10)):
        run = make_run(f"killed-{number}", **how)
        assert digests(run, clients, kill_after=share * seconds, killed=killed) == expected
        left = ".tmp"  # what a killed process was writing
        names = [name for name in Store(run[0].store).names("updates") if not name.endswith(left)]
        assert len(names) == 2 * len(clients)
    assert len(killed) >= 5  # the others had finished
