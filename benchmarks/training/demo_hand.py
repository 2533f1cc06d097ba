"""The local trainings of FMMAN's cycles in two processes, and nothing else: ``... demo_hand RUN ROUNDS``.

Every client trains twice, as in the first round of a finished run: from the initial model, and from its cluster's with
all clusters' as references. Nothing is checked, written, sent, aggregated or evaluated. What remains is the work that
``fedscene run`` cannot leave out.
"""

import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.training.hand_loop_two import PROCESSES, divide

if TYPE_CHECKING:
    from torch.nn import Module

    from tasks.client.local_data import LocalData
    from tasks.client.payload import Payload
    from tasks.core.context import RunContext
    from tasks.core.records import ModelRef, RoundRecord
    from tasks.core.store import Store


def serve(root: Path, number: int, connection: Connection) -> None:
    """Train this process's clients of each stage that is asked for, until 0 comes."""
    import torch

    from flows.run.open import read_context
    from tasks.client.local_data import local_data
    from tasks.core.records import read_round
    from tasks.server.initial_model import initial_model

    torch.set_num_threads(1)
    context = read_context(root)
    store = context.open_store()
    record = read_round(store.read_json("rounds/0001/round.json"), 1)
    data = {client: local_data(context, client) for client in record.participants}
    mine = divide({client: data[client].count("labelled") for client in data}, PROCESSES)[number]
    payloads = payloads_of(record, initial_model(context))
    while stage := connection.recv():
        for client in mine:
            train(context, store, client, stage, payloads[stage](client), data[client])
        connection.send(stage)


def train(
    context: "RunContext", store: "Store", client: str, stage: int, payload: "Payload", data: "LocalData"
) -> "Module":
    """Train a client in the first round; return its network."""
    from tasks.client.local_training import LocalTraining, Place
    from tasks.client.work import LocalWork

    training = LocalTraining(context, store, Place(client, 1, stage), payload, LocalWork(), data)
    training.run(time.monotonic() + context.client_timeout_s)
    return training.model


def payloads_of(record: "RoundRecord", initial: "ModelRef") -> "dict[int, Callable[[str], Payload]]":
    """Return stage -> the function from a client to what it was sent in the round."""
    from tasks.client.payload import Payload

    prototypes = record.state.cluster_models
    first = Payload.of(initial, references=[initial] * len(prototypes)).reduced("all")

    def second(client: str) -> Payload:
        own = record.state.cluster_of[client]
        return Payload.of(prototypes[own], references=prototypes, own=own).reduced("all")

    return {1: lambda client: first, 3: second}


def main(root: Path, rounds: int) -> None:
    """Train all rounds."""
    context = get_context("spawn")
    ends = []
    for number in range(PROCESSES):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(root, number, theirs), daemon=True).start()
        ends.append(ours)
    for round_ in range(1, rounds + 1):
        for stage in (1, 3):
            for end in ends:
                end.send(stage)
            for end in ends:
                end.recv()
        print(f"round {round_} done", file=sys.stderr, flush=True)
    for end in ends:
        end.send(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
