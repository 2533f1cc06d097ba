"""Worker processes that decode images."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Start processes of one thread each; they end with the process that started them, however that ends.

    They are spawned: this process may hold threads and locks (Prefect, torch), which a fork would copy.
    """
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start)


def _start() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent ends: a killed parent cannot stop its workers, which would wait for ever."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
