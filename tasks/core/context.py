"""What every task of one run has in common: a small frozen record, passed to each task."""

import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.core.records import ModelRef
from tasks.core.store import Store, digest_of

if TYPE_CHECKING:
    from models.settings import ModelSettings
    from tasks.core.evaluation_settings import EvaluationSettings
    from tasks.core.train_settings import TrainSettings


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

    def open_store(self) -> Store:
        """The run's store."""
        return Store(self.store)


# The sources that decide a result; dvc.yaml names the same as dependencies of its stage federate (a test says so).
RESULT_CODE = (
    "models",
    "tasks/client",
    "tasks/server",
    "tasks/core/context.py",
    "tasks/evaluation/evaluate.py",
    "tasks/core/evaluation_settings.py",
    "tasks/evaluation/metrics.py",
    "tasks/server/initial_model.py",
    "tasks/core/network.py",
    "tasks/core/randomness.py",
    "flows/methods",
    "flows/federation/federation.py",
    "flows/federation/jobs.py",
)
DATA_CODE = ("tasks/data",)


@cache
def code_digest(sources: tuple[str, ...] = RESULT_CODE) -> str:
    """sha256 over Python sources, files or folders, so that changed code never reuses an old output."""
    root = Path(__file__).resolve().parents[2]
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
