"""The data of a run, as its tasks load them."""

from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.data.clients import Clients, load_clients
from tasks.data.dataset import Dataset, load_dataset

if TYPE_CHECKING:
    from tasks.core.context import RunContext


def load_run_data(context: "RunContext") -> tuple[Dataset, Clients]:
    """Data set and clients of a run, verified; they are in memory from an earlier task in most cases.

    Raises:
        UserError: They are missing or damaged, or others have taken their place since the run began.
    """
    dataset, clients = load_dataset(Path(context.dataset)), load_clients(Path(context.clients))
    for found, expected, where in (
        (clients.digest, context.data_digest or clients.digest, context.clients),
        (dataset.digest, clients.summary["dataset_digest"], context.dataset),
    ):
        if found != expected:
            raise UserError(
                "the data of this run were replaced while it was running",
                where=where,
                expected=expected,
                found=found,
                hint="start it again: it goes on if they are the same, else it is another run",
            )
    return dataset, clients
