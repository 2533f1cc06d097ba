"""Ctrl-C: training stops at its next step, without waiting for a server that the same Ctrl-C has ended."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tasks.client.stopping import stop_training

MESSAGE = "interrupted; finished work is kept, run again to continue"
EXIT_TIMEOUT_S = 8.0


@contextlib.contextmanager
def stopping_on_interrupt() -> Iterator[None]:
    """Make SIGINT stop the training threads and raise KeyboardInterrupt in the main thread, inside the block.

    Prefect would then wait, with tracebacks, for its embedded server, which a terminal's Ctrl-C ends as well. Finished
    work is in place, so the process ends after ``EXIT_TIMEOUT_S`` seconds whatever is still waiting.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        if not stop_training.is_set():
            stop_training.set()
            print(MESSAGE, file=sys.stderr, flush=True)
            logging.disable(logging.CRITICAL)
            timer = threading.Timer(EXIT_TIMEOUT_S, os._exit, args=(130,))
            timer.daemon = True
            timer.start()
        raise KeyboardInterrupt

    stop_training.clear()
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
