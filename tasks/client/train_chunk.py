"""Several clients in one task, so that fifty clients do not create fifty rows in Prefect's database."""

import logging
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.client.batches import TrainingError
from tasks.client.stopping import TrainingStopped
from tasks.client.train import TrainJob, train_client
from tasks.core.records import Dropped, Update

if TYPE_CHECKING:
    from tasks.core.context import RunContext

_device_slots: dict[tuple[str, int], threading.BoundedSemaphore] = {}
_device_lock = threading.Lock()


class ChunkError(Exception):
    """Some clients of a chunk failed for a reason that may pass; the task is retried for them alone.

    Attributes:
        failures: Client id -> reason.
        dropped: The chunk's clients whose failure would repeat.
    """

    def __init__(self, failures: dict[str, str], dropped: Sequence[Dropped] = ()) -> None:
        self.failures, self.dropped = failures, list(dropped)
        super().__init__("; ".join(f"client {client}: {reason}" for client, reason in sorted(failures.items())))

    def __reduce__(self) -> tuple:
        return (ChunkError, (self.failures, self.dropped))


def device_slots(device: str, slots: int) -> threading.BoundedSemaphore:
    """Return the semaphore that bounds how many clients of this process train on a device at once."""
    with _device_lock:
        return _device_slots.setdefault((device, slots), threading.BoundedSemaphore(slots))


def describe(error: BaseException) -> str:
    """Return an unexpected error as text, with the last line of this project in its traceback."""
    root = Path(__file__).parents[2]
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(root)]
    where = f" ({Path(own[-1].filename).relative_to(root)}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{where}"


def train_clients(context: "RunContext", jobs: Sequence[TrainJob], slots: int) -> tuple[list[Update], list[Dropped]]:
    """Train the clients of a chunk one after the other.

    Finished clients are in the store, so a retry of the task trains only those that failed. An unexpected error, such
    as a mistake in an objective, ends one client's training alone, and its traceback is logged.

    Args:
        context: The run.
        jobs: One job per client.
        slots: How many clients of this process may train on the device at once.

    Returns:
        The updates, and the clients whose failure would repeat, with the reason.

    Raises:
        ChunkError: If a client failed for a reason that may pass (I/O, memory); the others are finished.
    """
    updates: list[Update] = []
    dropped: list[Dropped] = []
    failures: dict[str, str] = {}
    cause: Exception | None = None
    for job in jobs:
        try:
            with device_slots(context.device, slots):
                updates.append(train_client(context, job))
        except (TrainingError, UserError) as error:
            dropped.append(Dropped(job.client, job.stage, str(error)))
        except (OSError, RuntimeError, MemoryError) as error:  # torch reports CUDA and memory faults as RuntimeError
            in_code = isinstance(error, RuntimeError)  # may also be a mistake, such as shapes that do not fit
            failures[job.client] = describe(error) if in_code else f"{type(error).__name__}: {error}"
            cause = error
        except TrainingStopped:
            raise
        except Exception as error:  # it would repeat, so there is no retry
            logging.getLogger(__name__).exception("client %s, round %d, stage %d", job.client, job.round, job.stage)
            dropped.append(Dropped(job.client, job.stage, describe(error)))
    if failures:
        raise ChunkError(failures, dropped) from cause
    return updates, dropped
