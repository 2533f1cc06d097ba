"""What clients are sent, compressed: ``aggregation.downlink_transforms`` (docs/algorithms/aggregation.md).

The base is the last model that all clients of a stage were sent. Those that have it get the compressed change of every
other model; the rest get that model, as the first group restores it, in full. So all train from the same tensors.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.client.local_data import SERVER
from tasks.client.payload import Payload, Sent
from tasks.client.train import TrainJob
from tasks.core.model_ref import ModelRef
from tasks.server.downlink import Broadcast, keep_holders, read_holders

if TYPE_CHECKING:
    from flows.federation.round import Round

BASE, MEMORY, HOLDERS = "downlink-base", "downlink-memory", "downlink-holders"  # in RoundState.server


class Downlink:
    """The models that one round sends.

    Args:
        round_: The round; its state keeps the base, who has it, and the error feedback.
    """

    def __init__(self, round_: "Round") -> None:
        self.round, self.server = round_, round_.state.server
        self.restored: dict[str, ModelRef] = {}  # digest of a model -> the model as clients restore it

    def as_sent(self, model: ModelRef) -> ModelRef:
        """Return a model as clients have it: compressed if it was sent in this round, else as it is."""
        return self.restored.get(model.digest, model)

    def compress(self, jobs: Sequence[TrainJob], name: str) -> list[TrainJob]:
        """Return the jobs of a stage with the models that they are sent compressed."""
        base, sent = self.server.get(BASE), {ref.digest: ref for job in jobs for ref in _models(job)}
        common = _common(jobs)
        if base is None:  # the first model of a run goes to all in full
            return list(jobs)
        done = {}
        for ref in sent.values():
            if ref.digest != base.digest:
                title = f"round {self.round.number}: compress a model of {name}"
                feedback = common is not None and ref.digest == common.digest
                memory = self.server.get(MEMORY) if feedback else None
                place = (self.round.number, jobs[0].stage)
                args = (self.round.context, ref, base, memory, feedback, *place)
                done[ref.digest] = self.round.engine.run("compress-model", title, *args)
        self.restored |= {digest: broadcast.model for digest, broadcast in done.items()}
        if common is not None and common.digest in done:
            self._keep_memory(done[common.digest].memory)
        holders = read_holders(self.round.context, self.server[HOLDERS])
        return [job if job.client == SERVER else _sent(job, done, base, job.client in holders) for job in jobs]

    def delivered(self, jobs: Sequence[TrainJob], clients: Sequence[str]) -> None:
        """Make the model that all clients of a stage were sent the base; those that reported have it."""
        common = _common(jobs)
        if common is None:
            return
        base, holders = self.server.get(BASE), set(clients)
        if base is not None and base.digest == common.digest:
            holders |= read_holders(self.round.context, self.server[HOLDERS])
        self.server[BASE] = common
        self.server[HOLDERS] = keep_holders(self.round.context, sorted(holders))

    def _keep_memory(self, memory: ModelRef | None) -> None:
        if memory is None:
            self.server.pop(MEMORY, None)
        else:
            self.server[MEMORY] = memory


def _models(job: TrainJob) -> list[ModelRef]:
    """Return the models that travel to a client."""
    if job.client == SERVER:
        return []
    return [sent.ref for sent in (job.payload.start, *job.payload.references) if sent.travels]


def _common(jobs: Sequence[TrainJob]) -> ModelRef | None:
    """Return the initial weights if all clients of a stage are sent the same."""
    starts = [job.payload.start for job in jobs if job.client != SERVER]
    same = bool(starts) and all(start.ref.digest == starts[0].ref.digest for start in starts)
    return starts[0].ref if same else None


def _sent(job: TrainJob, done: dict[str, Broadcast], base: ModelRef, has_base: bool) -> TrainJob:
    """Return a client's job with compressed models; the base is not sent to a client that has it."""

    def part(sent: Sent) -> Sent:
        if sent.ref.digest == base.digest:
            return replace(sent, travels=sent.travels and not has_base)
        if sent.ref.digest not in done:  # it does not travel
            return sent
        broadcast = done[sent.ref.digest]
        return replace(sent, ref=broadcast.model, compressed_bytes=broadcast.bytes if has_base else None)

    payload: Payload = job.payload
    references = tuple(part(sent) for sent in payload.references)
    return replace(job, payload=replace(payload, start=part(payload.start), references=references))
