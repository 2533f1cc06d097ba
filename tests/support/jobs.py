"""Jobs for tests: one client's part in a stage, with what it is sent and does in one call."""

from collections.abc import Sequence
from typing import Any

from tasks.client.payload import Payload
from tasks.client.train import TrainJob
from tasks.client.work import LocalWork
from tasks.core.records import ModelRef


def train_job(
    client: str,
    round_: int,
    stage: int,
    start: ModelRef,
    references: Sequence[ModelRef] = (),
    *,
    own: int | None = None,
    private: ModelRef | None = None,
    personal: ModelRef | None = None,
    method: ModelRef | None = None,
    **work: Any,
) -> TrainJob:
    """Return a job.

    Args:
        client: The client.
        round_: The round.
        stage: The stage.
        start: The initial weights.
        references: The reference models that it is sent; equal ones are sent once.
        own: Index of the client's cluster among them.
        private: What it keeps from its last training.
        personal: What the server made for it.
        method: The method's tensors.
        work: Fields of ``LocalWork``.
    """
    payload = Payload.of(start, references=references, own=own, method=method).with_state(private, personal)
    return TrainJob(client, round_, stage, payload.reduced("all"), LocalWork(**work))
