"""The workload by pfl: ``python -m benchmarks.training.pfl_run JOB PROCESSES``.

As pfl's guides and its CIFAR-10 benchmark do it: ``SimulatedBackend`` with ``FederatedAveraging``, users weighted by
their images, and for two processes the variables of "Fast distributed simulations", with the users' sizes given so that
both processes have as much to do. No evaluation, no mechanism of privacy, no callback but one that prints a line.
"""

import json
import os
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.training.job import Job


def addresses() -> str:
    """Return two free local addresses, as PFL_WORKER_ADDRESSES takes them."""
    found = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            found.append(f"127.0.0.1:{probe.getsockname()[1]}")
    return ",".join(found)


def main(folder: Path, processes: int) -> None:
    """Start the other process if there are two, and train."""
    other = None
    if processes == 2 and "PFL_WORKER_RANK" not in os.environ:
        both = os.environ | {"PFL_WORKER_ADDRESSES": addresses()}
        other = subprocess.Popen([sys.executable, *sys.orig_argv[1:]], env=both | {"PFL_WORKER_RANK": "1"})
        os.environ |= both | {"PFL_WORKER_RANK": "0"}
    try:
        train(folder, int(os.environ.get("PFL_WORKER_RANK", "0")))
    finally:
        if other is not None:
            other.terminate() if sys.exc_info()[0] else other.wait()


def train(folder: Path, rank: int) -> None:
    """Train all rounds; the first process prints the loss."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    from benchmarks.training.job import Job, show_first_batch

    torch.set_num_threads(1)
    job = Job(folder)
    network = job.network()

    def loss(self: torch.nn.Module, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.train()
        value = job.loss(self(images.float().div_(255)), targets.float())
        value.register_hook(lambda gradient: show_first_batch())
        return value

    def metrics(self: torch.nn.Module, images: torch.Tensor, targets: torch.Tensor) -> dict:
        return {"loss": Weighted(float(loss(self, images, targets)) * len(images), len(images))}

    class Line(TrainingProcessCallback):
        """Prints a line after each round."""

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            if rank == 0:
                print(f"round {central_iteration + 1} done", file=sys.stderr, flush=True)
            return False, Metrics()

    network.loss = types.MethodType(loss, network)
    network.metrics = types.MethodType(metrics, network)
    model = PyTorchModel(
        model=network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
    )
    data = FederatedDataset(users(job), sampler(job), {user: len(job.rows[user[1]]) for user in all_users(job)})
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=len(job.plan),
            evaluation_frequency=10**9,
            train_cohort_size=len(job.plan[1]),
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=job.lr, local_batch_size=job.batch_size
        ),
        callbacks=[Line()],
    )
    if rank == 0:
        print(json.dumps(job.score(network)))


def all_users(job: "Job") -> Iterator[tuple[int, str]]:
    """Yield (round, client) in the order in which they train."""
    for round_, clients in job.plan.items():
        yield from ((round_, client) for client in clients)


def sampler(job: "Job") -> Callable[[], tuple[int, str]]:
    """Return a sampler of users that yields the planned ones; pfl looks ahead, so it begins again at the end."""
    planned = list(all_users(job))
    position = -1

    def sample() -> tuple[int, str]:
        nonlocal position
        position += 1
        return planned[position % len(planned)]

    return sample


def users(job: "Job") -> Callable:
    """Return a function that makes the data set of a user, its images in the order of the round."""
    import numpy as np
    import torch
    from pfl.data.pytorch import PyTorchTensorDataset

    def make(user: tuple[int, str]) -> PyTorchTensorDataset:
        rows = np.concatenate(list(job.batches(*user)))
        tensors = torch.from_numpy(job.images[rows]), torch.from_numpy(job.targets[rows])
        return PyTorchTensorDataset(tensors, user_id=user[1])

    return make


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
