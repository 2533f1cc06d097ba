"""Stopping the clients' training from outside."""

import threading

stop_training = threading.Event()  # set by Ctrl-C: threads cannot be stopped from outside


class TrainingStopped(Exception):  # noqa: N818 - not an error: the user asked for it
    """Training was interrupted; finished clients stay in the store."""
