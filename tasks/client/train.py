"""The local loop: a client trains a model on its own images and returns an update.

Methods differ in the objective's step and the regulariser; the loop is the same for all. Every output is named by the
digest of its inputs, so a retried, resumed or repeated training returns the stored update.
"""

import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from models.errors import UserError
from tasks.client.batches import TrainingError, augment, batches, refuse_single_values
from tasks.client.objectives import LocalContext, Loss, Reference, Step, load_objective
from tasks.client.regularisers import Regulariser, RegulariserContext, RegulariserSpec, load_regulariser
from tasks.core.network import (
    PERSONAL,
    build_network,
    predict_logits,
    set_training_mode,
    split_state,
    to_float,
    with_personal,
)
from tasks.core.randomness import numpy_generator, torch_generator
from tasks.core.records import ModelRef, Update
from tasks.core.store import Store, client_folder, digest_of
from tasks.data.run_data import load_run_data

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from tasks.core.context import RunContext
    from tasks.core.train_settings import TrainSettings
    from tasks.data.dataset import LazyImages


stop_training = threading.Event()  # set by Ctrl-C: threads cannot be stopped from outside


class TrainingStopped(Exception):  # noqa: N818 - not an error: the user asked for it
    """Training was interrupted; finished clients stay in the store."""


Init = Literal["start", "best_cluster"]  # where local training begins


@dataclass(frozen=True)
class TrainJob:
    """One client's part in one stage of one round.

    Attributes:
        client: The client's id.
        round: 1-based round.
        stage: The paper's stage; repeats of a stage count on in tens.
        start: The weights to start from.
        references: Frozen reference models, each with its multiplicity.
        assigned_cluster: The client's cluster among the references.
        init: ``start``, or ``best_cluster``: the reference with the lowest local loss.
        state: The client's private tensors from earlier rounds, if any: ``model/<name>`` replace the start weights of
            that name, ``<regulariser>/<name>`` are the regulariser's.
        regulariser: What the method adds to the loss.
        server_tensors: Tensors that the server sent beside the model, for the regulariser.
    """

    client: str
    round: int
    stage: int
    start: ModelRef
    references: tuple[tuple[ModelRef, int], ...] = ()
    assigned_cluster: int | None = None
    init: Init = "start"
    state: ModelRef | None = None
    regulariser: RegulariserSpec | None = None
    server_tensors: ModelRef | None = None

    def output_name(self, context: "RunContext") -> str:
        """Return the update's name in the store, without suffix: the digest of all its inputs."""
        inputs = asdict(self)
        for ref in (
            inputs["start"],
            inputs["state"],
            inputs["server_tensors"],
            *(pair[0] for pair in inputs["references"]),
        ):
            if ref:
                ref.pop("uri")  # where the weights are stored does not matter
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
        The update; its weights and, for ``bn_policy: local``, the client's statistics are in the store.

    Raises:
        TrainingError: If the loss is not finite or the time is up.
        UserError: If weights, data or settings do not fit.
    """
    store = context.open_store()
    name = job.output_name(context)
    if done := find_update(store, name):
        return done
    started = time.monotonic()
    images, targets = client_data(context, job.client)
    model, references = load_networks(context, store, job, images, targets)
    regulariser = _regulariser(context, store, job, model, references)
    local = local_context(context, job, model, references, targets)
    steps, sums = optimise(context, job, local, regulariser, images, started + context.client_timeout_s)
    exchanged, statistics = split_state(model, context.bn_policy)
    private = {f"{PERSONAL}{key}": value for key, value in statistics.items()}
    if job.regulariser is not None:
        private |= {f"{job.regulariser.name}/{key}": value for key, value in regulariser.finish(steps).items()}
    update = Update(
        client=job.client,
        model=store.put_state(f"{name}.safetensors", exchanged),
        samples=len(images),
        steps=steps,
        sums=sums,
        seconds=time.monotonic() - started,
        state=store.put_state(f"{client_folder(job.client)}/{name[8:]}.safetensors", private) if private else None,
    )
    store.write_json(f"{name}.json", update.as_dict())
    return update


def client_data(context: "RunContext", client: str) -> "tuple[LazyImages, np.ndarray]":
    """Return the client's labelled training images uint8 [M_i, 3, S, S], read on access, and labels uint8 [M_i, C].

    Raises:
        UserError: If the partition does not know the client, or put all labels at the server.
    """
    from tasks.client.feature_skew import client_images

    dataset, clients = load_run_data(context)
    if client not in clients.indices:
        raise UserError("no such client in the partition", where=context.clients, expected=clients.ids, found=client)
    clients.require_labels()
    rows = clients.indices[client]
    return client_images(dataset, clients, client, rows), dataset.targets[rows]


def load_networks(
    context: "RunContext", store: Store, job: TrainJob, images: "LazyImages", targets: "np.ndarray"
) -> "tuple[nn.Module, tuple[Reference, ...]]":
    """Return the model to train, with the client's personal tensors, and the frozen reference models."""
    references = []
    for ref, multiplicity in job.references:
        reference = build_network(context, store, ref).eval().requires_grad_(False)
        references.append(Reference(reference, multiplicity))
    start = job.start
    if job.init == "best_cluster" and references:
        logits = [predict_logits(context, reference.model, images) for reference in references]
        losses = [context.problem.loss(values, targets) for values in logits]
        start = job.references[losses.index(min(losses))][0]
    model = build_network(context, store, start)
    if job.state is not None:
        with_personal(model, store, job.state)
    return model, tuple(references)


def _regulariser(
    context: "RunContext", store: Store, job: TrainJob, model: "nn.Module", references: tuple[Reference, ...]
) -> Regulariser:
    """Return the method's regulariser with the client's and the server's tensors for it, on the run's device."""
    spec = job.regulariser
    if spec is None:
        return Regulariser()
    prefix = f"{spec.name}/"
    stored = store.get_state(job.state) if job.state else {}
    client = {
        key.removeprefix(prefix): value.to(context.device) for key, value in stored.items() if key.startswith(prefix)
    }
    sent = store.get_state(job.server_tensors) if job.server_tensors else {}
    server = {key: value.to(context.device) for key, value in sent.items()}
    local = RegulariserContext(model, references, spec.values, client, server, context.train, context.objective)
    return load_regulariser(spec.name).make(local)


def local_context(
    context: "RunContext", job: TrainJob, model: "nn.Module", references: tuple[Reference, ...], targets: "np.ndarray"
) -> LocalContext:
    """Return what the objective may use; the network's stochastic modules draw from the same generator."""
    import torch

    from models.stochastic import use_generator

    place: dict[str, Any] = {"round_": job.round, "stage": job.stage, "client": job.client}
    # The purpose is part of every seed: never changed.
    generator = torch_generator(context.seed, "local draws", device=context.device, **place)
    use_generator(model, generator)
    labels = torch.from_numpy(targets).to(context.device)
    return LocalContext(model, references, job.assigned_cluster, context.objective_settings, generator, labels)


def optimise(
    context: "RunContext",
    job: TrainJob,
    local: LocalContext,
    regulariser: Regulariser,
    images: "LazyImages",
    deadline: float,
) -> tuple[int, dict[str, tuple[float, float]]]:
    """Train ``local.model`` in place; return the number of steps and the last epoch's sums of the loss's parts."""
    import torch

    order = numpy_generator(context.seed, "batch order", round_=job.round, stage=job.stage, client=job.client)
    set_training_mode(local.model, context.bn_policy)
    refuse_single_values(local.model)
    step = load_objective(context.objective).make(local)
    optimiser = make_optimiser(local.model, context.train)
    sums: dict[str, list[Tensor | float]] = {}
    done = 0
    for _ in range(context.train.epochs):
        sums = {}
        for rows in batches(len(images), context.train.batch_size, order):
            if stop_training.is_set():
                raise TrainingStopped
            if time.monotonic() > deadline:
                raise TrainingError(f"not finished after federation.client_timeout_s={context.client_timeout_s:g} s")
            x = augment(to_float(images[rows], context.device), context.train, local.generator)
            y = local.targets[torch.from_numpy(rows).to(context.device)]
            loss = _optimiser_step(context, step, regulariser, optimiser, local.model, x, y)
            for part, (total, weight) in loss.sums.items():
                before = sums.setdefault(part, [0.0, 0.0])
                before[0], before[1] = before[0] + total, before[1] + weight
            done += 1
        # Checked at the epoch's end only, because reading a number waits for the GPU.
        if not all(torch.isfinite(torch.as_tensor(pair[0])) for pair in sums.values()):
            raise TrainingError(f"the loss is not finite after {done} steps; try a smaller train.lr")
    return done, {part: (float(pair[0]), float(pair[1])) for part, pair in sums.items()}


def _optimiser_step(
    context: "RunContext",
    step: Step,
    regulariser: Regulariser,
    optimiser: "torch.optim.Optimizer",
    model: "nn.Module",
    x: "Tensor",
    y: "Tensor",
) -> Loss:
    """Do one optimiser step with clipping; return the batch's loss."""
    import torch

    optimiser.zero_grad(set_to_none=True)
    device = torch.device(context.device).type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=context.precision == "bf16"):
        loss = regulariser.change(step(x, y), x)
    if loss.total.requires_grad:  # a batch without any unknown label has a constant loss
        loss.total.backward()
        if context.train.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), context.train.grad_clip)
        optimiser.step()
    return loss


def make_optimiser(model: "nn.Module", settings: "TrainSettings") -> "torch.optim.Optimizer":
    """Return a fresh optimiser over the parameters with gradients."""
    import torch

    parameters = [value for value in model.parameters() if value.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, settings.lr, weight_decay=settings.weight_decay)
