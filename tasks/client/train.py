"""The one local loop: a client trains a model on its own images and sends back an update.

What differs between methods is the objective's step; the loop is the same for all. Every output is named by the
digest of its inputs, so a retried, resumed or repeated training returns what is there.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.client.batches import augment, batches
from tasks.client.objectives import Loss, Reference, Scene, load_objective
from tasks.client.regularisers import Regulariser, RegulariserContext, RegulariserSpec, load_regulariser
from tasks.core.network import (
    PERSONAL,
    binary_cross_entropy,
    build_network,
    predict_logits,
    set_training_mode,
    split_state,
    to_float,
    with_personal,
)
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


class TrainingStopped(Exception):  # noqa: N818 - not an error: someone asked for it
    """Training was interrupted; what is finished stays."""


class TrainingError(Exception):
    """A client's training cannot give a usable update, and trying again would give the same."""


class BatchError(TrainingError):
    """BatchNorm has one value per channel to take its statistics from: one image whose last map is 1 x 1."""


@dataclass(frozen=True)
class TrainJob:
    """One client's part in one stage of one round.

    Attributes:
        client: The client's id.
        round: 1-based round.
        stage: The paper's stage; repeats of a stage count on in tens.
        start: The weights to start from.
        references: Frozen prototypes, each with its number of equal multiplicity.
        own: The client's own cluster among the references.
        start_from_best: Start from the reference with the lowest local loss instead of ``start``.
        state: The client's private tensors from earlier rounds, if any: ``model/<name>`` are laid over the start
            weights, ``<term>/<name>`` are the term's.
        term: What the method adds to the loss.
        shared: Tensors that the server sent beside the model, for the term.
    """

    client: str
    round: int
    stage: int
    start: ModelRef
    references: tuple[tuple[ModelRef, int], ...] = ()
    own: int | None = None
    start_from_best: bool = False
    state: ModelRef | None = None
    term: RegulariserSpec | None = None
    shared: ModelRef | None = None

    def output_name(self, context: "RunContext") -> str:
        """Name of the update in the store, without suffix: the digest of all that decides it."""
        inputs = asdict(self)
        for ref in (inputs["start"], inputs["state"], inputs["shared"], *(pair[0] for pair in inputs["references"])):
            if ref:
                ref.pop("uri")  # where the weights lie does not matter, what they are does
        return f"updates/{digest_of(context.fingerprint, context.seed, inputs)[:32]}"


def find_update(store: Store, name: str) -> Update | None:
    """The finished update of that name if it is there and its weights verify."""
    if not store.exists(f"{name}.json"):
        return None
    try:
        update = Update.of(store.read_json(f"{name}.json"))
    except (UserError, KeyError, TypeError, ValueError):  # damaged: it is trained again
        return None
    return update if all(store.holds(ref) for ref in (update.model, update.state) if ref) else None


def train_client(context: "RunContext", job: TrainJob) -> Update:
    """Trains one client, or returns its finished update.

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
    model, references = _networks(context, store, job, images, targets)
    term = _term(context, store, job, model, references)
    steps, sums = _optimise(context, job, model, references, term, images, targets, started + context.client_timeout_s)
    exchanged, statistics = split_state(model, context.bn_policy)
    private = {f"{PERSONAL}{key}": value for key, value in statistics.items()}
    if job.term is not None:
        private |= {f"{job.term.name}/{key}": value for key, value in term.finish(steps).items()}
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
    """The client's labelled training images uint8 [M_i, 3, S, S], read as they are indexed, and labels uint8 [M_i, C].

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


def _networks(
    context: "RunContext", store: Store, job: TrainJob, images: "LazyImages", targets: "np.ndarray"
) -> "tuple[nn.Module, tuple[Reference, ...]]":
    """The model to train, loaded and with the client's own state, and the frozen references."""
    references = []
    for ref, multiplicity in job.references:
        reference = build_network(context, store, ref).eval().requires_grad_(False)
        references.append(Reference(reference, multiplicity))
    start = job.start
    if job.start_from_best and references:
        logits = [predict_logits(context, reference.model, images) for reference in references]
        losses = [binary_cross_entropy(values, targets) for values in logits]
        start = job.references[losses.index(min(losses))][0]
    model = build_network(context, store, start)
    if job.state is not None:
        with_personal(model, store, job.state)
    return model, tuple(references)


def _term(
    context: "RunContext", store: Store, job: TrainJob, model: "nn.Module", references: tuple[Reference, ...]
) -> Regulariser:
    """The method's term with the client's and the server's tensors for it, on the run's device."""
    if job.term is None:
        return Regulariser()
    prefix = f"{job.term.name}/"
    state = store.get_state(job.state) if job.state else {}
    own = {key.removeprefix(prefix): value.to(context.device) for key, value in state.items() if key.startswith(prefix)}
    shared = store.get_state(job.shared) if job.shared else {}
    sent = {key: value.to(context.device) for key, value in shared.items()}
    scene = RegulariserContext(model, references, job.term.values, own, sent, context.train, context.objective)
    term: Regulariser = load_regulariser(job.term.name).make(scene)
    return term


def _optimise(
    context: "RunContext",
    job: TrainJob,
    model: "nn.Module",
    references: tuple[Reference, ...],
    term: Regulariser,
    images: "LazyImages",
    targets: "np.ndarray",
    deadline: float,
) -> tuple[int, dict[str, tuple[float, float]]]:
    """Trains in place; returns the steps done and the last epoch's loss sums."""
    import torch

    from models.stochastic import use_generator
    from tasks.core.randomness import numpy_generator, torch_generator

    place: dict[str, Any] = {"round_": job.round, "stage": job.stage, "client": job.client}
    draws = torch_generator(context.seed, "local draws", device=context.device, **place)
    order = numpy_generator(context.seed, "batch order", **place)
    use_generator(model, draws)
    set_training_mode(model, context.bn_policy)
    labels = torch.from_numpy(targets).to(context.device)
    scene = Scene(model, references, job.own, context.objective_settings, draws, labels)
    step = load_objective(context.objective).make(scene)
    optimiser = make_optimiser(model, context.train)
    sums: dict[str, list[Tensor | float]] = {}
    done = 0
    for _ in range(context.train.epochs):
        sums = {}
        for rows in batches(len(images), context.train.batch_size, order):
            if stop_training.is_set():
                raise TrainingStopped
            if time.monotonic() > deadline:
                raise TrainingError(f"not finished after federation.client_timeout_s={context.client_timeout_s:g} s")
            x = augment(to_float(images[rows], context.device), context.train, draws)
            y = labels[torch.from_numpy(rows).to(context.device)]
            loss = _step(context, step, term, optimiser, model, x, y)
            for part, (total, weight) in loss.sums.items():
                before = sums.setdefault(part, [0.0, 0.0])
                before[0], before[1] = before[0] + total, before[1] + weight
            done += 1
        # Held back until the epoch's end, since reading a number waits for the GPU.
        if not all(torch.isfinite(torch.as_tensor(pair[0])) for pair in sums.values()):
            raise TrainingError(f"the loss is not finite after {done} steps; try a smaller train.lr")
    return done, {part: (float(pair[0]), float(pair[1])) for part, pair in sums.items()}


def _step(
    context: "RunContext",
    step: Any,
    term: Regulariser,
    optimiser: "torch.optim.Optimizer",
    model: "nn.Module",
    x: "Tensor",
    y: "Tensor",
) -> Loss:
    """One optimiser step with clipping."""
    import torch

    optimiser.zero_grad(set_to_none=True)
    device = torch.device(context.device).type
    with (
        _naming_single_values(x),
        torch.autocast(device, dtype=torch.bfloat16, enabled=context.precision == "bf16"),
    ):
        loss = term.change(step(x, y), x)
    if loss.total.requires_grad:  # a batch without anything to learn from has a constant loss
        loss.total.backward()
        if context.train.grad_clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), context.train.grad_clip)
        optimiser.step()
    return loss


@contextlib.contextmanager
def _naming_single_values(x: "Tensor") -> Iterator[None]:
    """Makes PyTorch's refusal of a single value, which has no type of its own, a ``BatchError``; no other error."""
    try:
        yield
    except ValueError as error:
        if len(x) > 1 or not str(error).startswith("Expected more than 1 value per channel"):
            raise
        raise BatchError(
            f"a batch of {len(x)} image of {x.shape[-1]} pixels cannot be trained on: {error}; "
            "more images a client (partition.min_size) or larger ones (ingest.image_size) can"
        ) from error


def make_optimiser(model: "nn.Module", settings: "TrainSettings") -> "torch.optim.Optimizer":
    """A fresh optimiser over the parameters with gradients."""
    import torch

    parameters = [value for value in model.parameters() if value.requires_grad]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, settings.lr, weight_decay=settings.weight_decay)
