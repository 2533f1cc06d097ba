"""What ``train.freeze`` keeps as it starts is sent to each client once (docs/training.md)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.client.local_data import SERVER
from tasks.client.payload import Sent
from tasks.client.train import TrainJob
from tasks.server.downlink import frozen_bytes, keep_holders, read_holders

if TYPE_CHECKING:
    from flows.federation.round import Round

HOLDERS = "frozen-holders"  # in RoundState.server: who has the frozen tensors


class FrozenParts:
    """Counts the frozen tensors of the models that one round sends.

    Args:
        round_: The round; its state keeps who has them.
    """

    def __init__(self, round_: "Round") -> None:
        self.round, self.server = round_, round_.state.server

    def sent_once(self, jobs: Sequence[TrainJob]) -> list[TrainJob]:
        """Return the jobs of a stage; a model's frozen tensors travel to clients that do not have them, once."""
        holders = self._holders()
        title = f"round {self.round.number}: size of what stays frozen"
        frozen = self.round.engine.run(frozen_bytes, title, self.round.context, jobs[0].payload.start.ref)
        return [_reduced(job, frozen, job.client in holders) for job in jobs]

    def delivered(self, clients: Sequence[str]) -> None:
        """Note that these clients have the frozen tensors."""
        holders = self._holders()
        if not holders.issuperset(clients):
            self.server[HOLDERS] = keep_holders(self.round.context, sorted(holders.union(clients)))

    def _holders(self) -> set[str]:
        return read_holders(self.round.context, self.server[HOLDERS]) if HOLDERS in self.server else set()


def _reduced(job: TrainJob, frozen: int, has_them: bool) -> TrainJob:
    """Return a client's job with the bytes of its models that travel."""
    if job.client == SERVER:
        return job
    full = None if has_them else next((s.ref.digest for s in _models(job) if s.travels), None)

    def part(sent: Sent) -> Sent:
        return sent if sent.ref.digest == full else replace(sent, compressed_bytes=sent.ref.bytes - frozen)

    payload = job.payload
    references = tuple(part(sent) for sent in payload.references)
    return replace(job, payload=replace(payload, start=part(payload.start), references=references))


def _models(job: TrainJob) -> list[Sent]:
    return [job.payload.start, *job.payload.references]
