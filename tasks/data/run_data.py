"""The data of a run, as its tasks load it."""

from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.data.clients import Clients, load_clients, partitioned
from tasks.data.dataset import Dataset, load_dataset

if TYPE_CHECKING:
    from tasks.core.context import RunContext


def load_run_data(context: "RunContext") -> tuple[Dataset, Clients]:
    """Load and verify the data set and the clients of a run; both are cached in memory after the first call.

    The data set's splits are those that hold for the clients (``tasks.data.clients.partitioned``).

    Raises:
        UserError: They are missing or damaged, or were replaced since the run began.
    """
    dataset, clients = load_dataset(Path(context.dataset)), load_clients(Path(context.clients))
    for found, expected, where in (
        (clients.digest, context.data_digest or clients.digest, context.clients),
        (dataset.digest, clients.summary["dataset_digest"], context.dataset),
    ):
        if found != expected:
            raise UserError(
                "the data of this run was replaced while it was running",
                where=where,
                expected=expected,
                found=found,
                hint="start the run again: with the same data it resumes, with other data it is another run",
            )
    return partitioned(dataset, clients), clients
