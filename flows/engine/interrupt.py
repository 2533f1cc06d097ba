"""Ctrl-C: training stops at its next step, and nobody waits for a server that the same Ctrl-C has ended."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tasks.client.train import stop_training

MESSAGE = "interrupted; finished work is kept, run again to go on"
PATIENCE_S = 8.0


@contextlib.contextmanager
def stopping_on_interrupt() -> Iterator[None]:
    """For the duration SIGINT stops the training threads and raises KeyboardInterrupt in the main thread.

    Prefect would then wait, with tracebacks, for its embedded server, which a terminal's Ctrl-C ends as well. Finished
    work is in place, so the process ends after ``PATIENCE_S`` seconds whatever still waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        if not stop_training.is_set():
            stop_training.set()
            print(MESSAGE, file=sys.stderr, flush=True)
            logging.disable(logging.CRITICAL)
            timer = threading.Timer(PATIENCE_S, os._exit, args=(130,))
            timer.daemon = True
            timer.start()
        raise KeyboardInterrupt

    stop_training.clear()
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
