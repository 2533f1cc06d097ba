"""What every task of one run has in common: a small frozen record, passed to each task."""

import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.records import ModelRef
from tasks.store import Store, digest_of

if TYPE_CHECKING:
    from models.settings import ModelSettings
    from tasks.client.settings import TrainSettings
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset
    from tasks.evaluation_settings import EvaluationSettings


@dataclass(frozen=True)
class RunContext:
    """The run as a task sees it.

    Attributes:
        store: Root of the run's store, a folder or an fsspec URL.
        dataset: Folder of the canonical data set.
        clients: Folder that says who holds which samples.
        seed: The run's seed.
        classes: The one label order.
        image_size: Side S of the images, pixels.
        tables: The frozen embeddings of labels and state words, ``None`` for networks without.
        model: Settings of the network.
        train: Settings of the local loop.
        objective: Name of the objective and its settings section.
        objective_settings: That section.
        bn_policy: What happens to BatchNorm statistics (specification section 7).
        evaluation: How models are scored.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        precision: ``fp32`` or ``bf16`` (autocast, CUDA only).
        client_timeout_s: Longest time one client may train.
        fingerprint: Digest of all that decides a result; part of every output's name.
        data_digest: Digest of the partition, which names the data set's; "" to take whatever is there.
    """

    store: str
    dataset: str
    clients: str
    seed: int
    classes: tuple[str, ...]
    image_size: int
    tables: ModelRef | None
    model: "ModelSettings"
    train: "TrainSettings"
    objective: str
    objective_settings: Any
    bn_policy: str
    evaluation: "EvaluationSettings"
    device: str = "cpu"
    precision: str = "fp32"
    client_timeout_s: float = 3600.0
    fingerprint: str = field(default="")
    data_digest: str = ""

    def load_data(self) -> "tuple[Dataset, Clients]":
        """Data set and clients of the run, verified; they are in memory from an earlier task in most cases.

        Raises:
            UserError: They are missing or damaged, or others have taken their place since the run began.
        """
        from tasks.data.clients import load_clients
        from tasks.data.dataset import load_dataset

        dataset, clients = load_dataset(Path(self.dataset)), load_clients(Path(self.clients))
        for found, expected, where in (
            (clients.digest, self.data_digest or clients.digest, self.clients),
            (dataset.digest, clients.summary["dataset_digest"], self.dataset),
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

    def open_store(self) -> Store:
        """The run's store."""
        return Store(self.store)


# The sources that decide a result; dvc.yaml names the same as dependencies of its stage federate (a test says so).
RESULT_CODE = (
    "models",
    "tasks/client",
    "tasks/server",
    "tasks/context.py",
    "tasks/evaluate.py",
    "tasks/evaluation_settings.py",
    "tasks/metrics.py",
    "tasks/initial.py",
    "tasks/network.py",
    "tasks/randomness.py",
    "flows/rounds",
    "flows/federation.py",
    "flows/jobs.py",
)
DATA_CODE = ("tasks/data",)


@cache
def code_digest(sources: tuple[str, ...] = RESULT_CODE) -> str:
    """sha256 over Python sources, files or folders, so that changed code never reuses an old output."""
    root = Path(__file__).resolve().parent.parent
    files = [
        file for name in sources for file in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(file.relative_to(root).as_posix().encode())
        total.update(file.read_bytes())
    return total.hexdigest()


def fingerprint(**parts: Any) -> str:
    """Digest of everything that decides a result: settings, seed, data, code and the torch release."""
    import torch

    return digest_of(parts, code_digest(), str(torch.__version__))
