"""The workload by Flower: ``python -m benchmarks.training.flower_run JOB ACTORS``.

As Flower's documentation does it: a ``ServerApp`` with ``FedAvg``, a ``ClientApp``, one supernode for each client, run
by ``run_simulation``; a client gets one core, or both if there is to be one actor. The strategy only adds which client
trains. No evaluation.
"""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.training.flower_client import app
from benchmarks.training.job import Job


class Planned(FedAvg):
    """FedAvg in which the planned clients train; which supernode computes for which client makes no difference."""

    def __init__(self, job: Job) -> None:
        everyone = len(job.clients)
        super().__init__(
            fraction_train=len(job.plan[1]) / everyone,
            fraction_evaluate=0.0,
            min_train_nodes=len(job.plan[1]),
            min_available_nodes=everyone,
        )
        self.job = job

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Name a client in each message."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message, client in zip(messages, self.job.plan[server_round], strict=True):
            named = ConfigRecord(dict(message.content["config"]) | {"client": client})
            message.content = RecordDict(dict(message.content) | {"config": named})
        return messages


def main(folder: Path, actors: int) -> None:
    """Train all rounds; print the loss."""
    torch.set_num_threads(1)
    job, server, scores = Job(folder), ServerApp(), {}

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        del context

        def line(round_: int, arrays: ArrayRecord) -> None:
            del arrays
            if round_:  # 0: before the first round
                print(f"round {round_} done", file=sys.stderr, flush=True)

        result = Planned(job).start(
            grid=grid,
            initial_arrays=ArrayRecord(job.initial()),
            train_config=ConfigRecord({"job": str(folder)}),
            num_rounds=len(job.plan),
            evaluate_fn=line,
        )
        model = job.network()
        model.load_state_dict(result.arrays.to_torch_state_dict())
        scores.update(job.score(model))

    cores = len(os.sched_getaffinity(0))
    resources = {"num_cpus": max(1, cores // actors), "num_gpus": 0.0}
    run_simulation(server, app, len(job.clients), backend_config={"client_resources": resources})
    print(json.dumps(scores))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
