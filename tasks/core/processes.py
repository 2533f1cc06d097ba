"""Processes that work for this one and end with it, however it ends."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of processes of one thread each.

    They are spawned: this process may hold threads and locks (Prefect, torch), which a fork would copy.
    """
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=follow_parent)


def follow_parent() -> None:
    """Make this process single-threaded, and exit when the one that started it ends.

    A killed parent cannot stop its workers, which would wait for ever.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
