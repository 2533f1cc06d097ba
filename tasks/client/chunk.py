"""Several clients in one task, so that fifty clients do not mean fifty database rows."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.client.train import TrainingError, TrainJob, train_client
from tasks.records import Dropped, Update

if TYPE_CHECKING:
    from tasks.context import RunContext

_device_slots: dict[tuple[str, int], threading.BoundedSemaphore] = {}
_device_lock = threading.Lock()


class ChunkError(Exception):
    """Some clients of a chunk failed in a way that may pass; the task is tried again for them alone.

    Attributes:
        failures: Client id -> reason.
        dropped: The chunk's clients whose failure would repeat itself.
    """

    def __init__(self, failures: dict[str, str], dropped: Sequence[Dropped] = ()) -> None:
        self.failures, self.dropped = failures, list(dropped)
        super().__init__("; ".join(f"client {client}: {reason}" for client, reason in sorted(failures.items())))

    def __reduce__(self) -> tuple:
        return (ChunkError, (self.failures, self.dropped))


def device_slots(device: str, slots: int) -> threading.BoundedSemaphore:
    """The semaphore that bounds how many clients of this process train on a device at once."""
    with _device_lock:
        return _device_slots.setdefault((device, slots), threading.BoundedSemaphore(slots))


def train_clients(context: "RunContext", jobs: Sequence[TrainJob], slots: int) -> tuple[list[Update], list[Dropped]]:
    """Trains the clients of a chunk one after the other.

    Finished clients are in the store, so a retry of the task trains only those that failed.

    Args:
        context: The run.
        jobs: One job per client.
        slots: How many clients of this process may train on the device at once.

    Returns:
        The updates, and the clients whose failure would repeat itself, with the reason.

    Raises:
        ChunkError: If a client failed in a way that may pass (I/O, memory); the others are finished.
    """
    updates: list[Update] = []
    dropped: list[Dropped] = []
    failures: dict[str, str] = {}
    for job in jobs:
        try:
            with device_slots(context.device, slots):
                updates.append(train_client(context, job))
        except (TrainingError, UserError) as error:
            dropped.append(Dropped(job.client, job.stage, str(error)))
        except (OSError, RuntimeError, MemoryError) as error:  # torch reports CUDA and memory faults as RuntimeError
            failures[job.client] = f"{type(error).__name__}: {error}"
    if failures:
        raise ChunkError(failures, dropped)
    return updates, dropped
