"""A client's part in a stage: train a model on its own images and return an update.

Every output is named by the digest of its inputs, so a retried, resumed or repeated training returns the stored update.
"""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.client.batches import TrainingError
from tasks.client.local_data import SERVER, LocalData, local_data
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.network import PERSONAL, split_state
from tasks.core.randomness import torch_generator
from tasks.core.records import Update
from tasks.core.state_schema import is_frozen, schema_of
from tasks.core.store import Store, client_folder, digest_of, state_bytes
from tasks.core.update_transforms import Transformed, encoded_bytes, transform_update

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.client.local_training import LocalTraining
    from tasks.core.context import RunContext

TRANSFORMS = "transforms/"  # begins the names of what update transforms keep at the client


@dataclass(frozen=True)
class TrainJob:
    """One participant's part in one stage of one round.

    Attributes:
        client: The client's id, or ``SERVER``.
        round: 1-based round.
        stage: The paper's stage; repeats of a stage count on in tens.
        payload: What it is sent.
        work: What it does.
    """

    client: str
    round: int
    stage: int
    payload: Payload
    work: LocalWork

    def output_name(self, context: "RunContext") -> str:
        """Return the update's name in the store, without suffix: the digest of all its inputs."""
        place = [self.client, self.round, self.stage]
        inputs = [place, self.payload.identity(), asdict(self.work)]
        return f"updates/{digest_of(context.fingerprint, context.seed, inputs)[:32]}"


def find_update(store: Store, name: str) -> Update | None:
    """Return the finished update of that name if it exists and its weights verify."""
    if not store.exists(f"{name}.json"):
        return None
    try:
        update = Update.of(store.read_json(f"{name}.json"))
    except (UserError, KeyError, TypeError, ValueError):  # damaged: train again
        return None
    return update if all(store.holds(ref) for ref in (update.model, update.state) if ref) else None


def train_client(context: "RunContext", job: TrainJob) -> Update:
    """Train one client, or return its finished update.

    Args:
        context: The run.
        job: The client's part.

    Returns:
        The update; its weights and what the client keeps are in the store.

    Raises:
        TrainingError: If the loss is not finite or the time is up.
        UserError: If weights, data or settings do not fit.
    """
    from tasks.client.local_training import LocalTraining, Place

    store = context.open_store()
    name = job.output_name(context)
    if done := find_update(store, name):
        return done
    started = time.monotonic()
    data = local_data(context, job.client).in_round(job.round)
    samples = data.count(job.work.data)
    if job.work.reveal:
        data = data.revealed()
    require_images(job, data)
    training = LocalTraining(context, store, Place(job.client, job.round, job.stage), job.payload, job.work, data)
    begun = {} if job.work.stays else initial_tensors(context, training)
    steps, sums = training.run(started + context.client_timeout_s)
    unchanged = unchanged_tensors(context, training)
    exchanged, statistics = split_state(training.model, context.bn_policy)
    kept = kept_tensors(job, exchanged)
    known = {key: value for key, value in exchanged.items() if key in unchanged and key not in kept}
    sent = {key: value for key, value in exchanged.items() if key not in kept and key not in known}
    private = {f"{PERSONAL}{key}": value for key, value in (statistics | kept).items()}
    private |= training.kept_by_regularisers(steps)
    travelling = state_bytes(sent) if known else None
    if job.work.stays:
        travelling = 0
    elif context.client_transforms:
        outgoing = transformed(context, job, training, sent, begun)
        sent = outgoing.state
        private |= {f"{TRANSFORMS}{key}": value for key, value in outgoing.memory.items()}
        if outgoing.encoding:
            travelling = encoded_bytes(outgoing, schema_of(training.model))
    state_uri = f"{client_folder(job.client)}/{name.removeprefix('updates/')}.safetensors"
    update = Update(
        client=job.client,
        model=store.put_state(
            f"{name}.safetensors", {key: (sent | known)[key] for key in exchanged if key not in kept}
        ),
        samples=samples,
        steps=steps,
        sums=sums,
        seconds=time.monotonic() - started,
        state=store.put_state(state_uri, training.held | private) if private else None,
        compressed_bytes=travelling,
    )
    store.write_json(f"{name}.json", update.as_dict())
    return update


def unchanged_tensors(context: "RunContext", training: "LocalTraining") -> set[str]:
    """Return the names of the tensors that training left as they were, whose parameters are unfrozen again."""
    frozen = {id(value) for value in training.frozen}
    names = {name for name, value in training.model.named_parameters() if id(value) in frozen}
    for value in training.frozen:
        value.requires_grad_(True)
    return names | {name for name, _ in training.model.named_buffers() if is_frozen(context, name)}


def initial_tensors(context: "RunContext", training: "LocalTraining") -> "dict[str, Tensor]":
    """Return a copy of the tensors that training starts from, if the update is going to be transformed."""
    if not context.client_transforms:
        return {}
    return {name: value.detach().clone() for name, value in training.model.state_dict().items()}


def transformed(
    context: "RunContext",
    job: TrainJob,
    training: "LocalTraining",
    sent: "dict[str, Tensor]",
    begun: "dict[str, Tensor]",
) -> Transformed:
    """Return an update after the client's transforms, which get what they kept of the client's last one."""
    generator = torch_generator(context.seed, "client update transforms", job.round, job.stage, job.client)
    held = training.held.items()
    memory = {key.removeprefix(TRANSFORMS): value for key, value in held if key.startswith(TRANSFORMS)}
    return transform_update(
        sent, begun, context.client_transforms, schema_of(training.model), generator, job.client, memory
    )


def kept_tensors(job: TrainJob, tensors: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Return the tensors that the client keeps and does not send (``LocalWork.keeps``)."""
    return {name: value for name, value in tensors.items() if job.work.keeps and name.startswith(job.work.keeps)}


def require_images(job: TrainJob, data: LocalData) -> None:
    """Refuse a training without images of the kind that its work needs.

    Raises:
        TrainingError: If there are none.
    """
    if data.count(job.work.data) > 0:
        return
    what = "images" if job.work.data == "both" else f"{job.work.data} images"
    where = "the server" if job.client == SERVER else f"client {job.client}"
    raise TrainingError(f"{where} has no {what} to train on (partition.labelled)")
