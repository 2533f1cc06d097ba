"""The same in two processes: ``python -m benchmarks.training.hand_loop_two JOB``.

The two divide the clients of a round by their numbers of images, and each returns the weighted sum of its clients'
models in shared memory: the least that two processes can do.
"""

import json
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.training.job import Job

PROCESSES = 2


def divide(sizes: dict[str, int], parts: int) -> list[list[str]]:
    """Return the clients of each part: the largest first, each to the part with the fewest images."""
    found: list[list[str]] = [[] for _ in range(parts)]
    load = [0] * parts
    for client in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = load.index(min(load))
        found[least].append(client)
        load[least] += sizes[client]
    return found


def serve(folder: Path, number: int, state: Tensor, sums: Tensor, connection: Connection) -> None:
    """Train this process's clients of each round that is asked for, until 0 comes."""
    torch.set_num_threads(1)
    job = Job(folder)
    model = job.network()
    tensors = list(model.state_dict().values())
    while round_ := connection.recv():
        weights = job.weights(round_)
        sums.zero_()
        for client in divide({name: len(job.rows[name]) for name in weights}, PROCESSES)[number]:
            for tensor, value in zip(tensors, unflat(state, tensors), strict=True):
                tensor.copy_(value)
            job.train(model, round_, client)
            sums.add_(flat(tensors), alpha=weights[client])
        connection.send(round_)


def flat(tensors: list[Tensor]) -> Tensor:
    """Return all values in one vector."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def unflat(vector: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Return the tensors of a vector."""
    parts = vector.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def main(folder: Path) -> None:
    """Train all rounds; print the loss."""
    torch.set_num_threads(1)
    job, context = Job(folder), get_context("spawn")
    model = job.network()
    tensors = list(model.state_dict().values())
    assert all(tensor.is_floating_point() for tensor in tensors), "counters of BatchNorm cannot be averaged"
    state = flat(tensors).share_memory_()
    sums = [torch.zeros_like(state).share_memory_() for _ in range(PROCESSES)]
    ends = []
    for number in range(PROCESSES):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(folder, number, state, sums[number], theirs), daemon=True).start()
        ends.append(ours)
    for round_ in job.plan:
        for end in ends:
            end.send(round_)
        for end in ends:
            end.recv()
        state.copy_(sum(sums[1:], sums[0]))
        print(f"round {round_} done", file=sys.stderr, flush=True)
    for end in ends:
        end.send(0)
    for tensor, value in zip(tensors, unflat(state, tensors), strict=True):
        tensor.copy_(value)
    print(json.dumps(job.score(model)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
