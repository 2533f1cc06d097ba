"""One client's training: networks, loss, regularisers, and the loop over its batches.

Methods differ in the objective and the regularisers; the loop is the same for all.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from models.layers.stochastic import use_generator
from models.weights.parts import backbone_of
from tasks.client.batches import TrainingError, refuse_single_values
from tasks.client.local_data import LocalData
from tasks.client.objectives import Epoch, LocalContext, Loss, Reference, Step
from tasks.client.payload import Payload
from tasks.client.regularisers import Regulariser, RegulariserContext, RegulariserSpec, load_regulariser
from tasks.client.schedule import learning_rate, make_optimiser, warm_up
from tasks.client.stopping import TrainingStopped, stop_training
from tasks.client.work import LocalWork, chosen_objective
from tasks.core.network import (
    build_network,
    frozen_network,
    predict_logits,
    set_training_mode,
    with_personal,
)
from tasks.core.randomness import numpy_generator, torch_generator

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store


@dataclass(frozen=True)
class Place:
    """Where in a run a training is: part of every seed.

    Attributes:
        client: The client's id.
        round: 1-based round.
        stage: The paper's stage; repeats of a stage count on in tens.
    """

    client: str
    round: int
    stage: int

    def seed_parts(self) -> dict[str, Any]:
        """Return the parts that a generator is derived from."""
        return {"round_": self.round, "stage": self.stage, "client": self.client}


class LocalTraining:
    """A training that is ready to run.

    Args:
        context: The run.
        store: Its store.
        place: The client, round and stage.
        payload: What the client was sent.
        work: What it does.
        data: Its images.

    Attributes:
        model: The network in training.
        seen: What the objective and the regularisers train: the network, or all of it but a frozen image encoder.
        references: The frozen reference models.
        regularisers: By name, in the order in which they change the loss.
        held: What the client kept from its last training.

    Raises:
        UserError: If weights, data or settings do not fit.
    """

    def __init__(
        self, context: "RunContext", store: "Store", place: Place, payload: Payload, work: LocalWork, data: LocalData
    ) -> None:
        self.context, self.place, self.payload, self.work, self.data = context, place, payload, work, data
        self.references = tuple(
            Reference(frozen_network(context, store, sent.ref), sent.copies) for sent in payload.references
        )
        self.model = self._initial_model(store)
        self.frozen = freeze(self.model, work.trainable)
        self.objective, settings = chosen_objective(context, work)
        self._freeze_backbone()
        sent = _tensors(store, payload.method, context.device)
        self.held = _tensors(store, payload.private, context.device)
        self.regularisers = {spec.name: self._regulariser(spec, sent) for spec in work.regularisers}
        # The purpose is part of every seed: never changed.
        generator = torch_generator(context.seed, "local draws", device=context.device, **place.seed_parts())
        use_generator(self.model, generator)
        targets = torch.from_numpy(data.targets).to(context.device)
        self.local = LocalContext(
            self.seen, self.references, payload.own_reference, settings, generator, targets, self.data
        )

    def _freeze_backbone(self) -> None:
        """Freeze the image encoder if the settings say so, and take its vectors where they stand for the images."""
        from tasks.client.frozen_backbone import freeze_backbone, takes_vectors, with_vectors, without_backbone

        self.seen = self.model
        if self.context.train.freeze == "none":
            return
        self.frozen += freeze_backbone(self.model)
        if not any(value.requires_grad for value in self.model.parameters()):
            raise TrainingError("no parameter is left to train: train.freeze leaves the head, LocalWork.trainable not")
        if takes_vectors(self.context, self.model, self.objective):
            self.data = with_vectors(self.context, self.model, self.data, self.place.client)
            self.seen = without_backbone(self.model)
            views = (replace(sent, model=without_backbone(sent.model)) for sent in self.references)
            self.references = tuple(views)

    def _initial_model(self, store: "Store") -> nn.Module:
        """Return the network with the initial weights, replaced by the client's own where it has some."""
        start = self.payload.start.ref
        if self.work.init == "best_reference" and self.references:
            logits = [predict_logits(self.context, reference.model, self.data.images) for reference in self.references]
            losses = [self.context.problem.loss(values, self.data.targets) for values in logits]
            start = self.payload.references[losses.index(min(losses))].ref
        model = build_network(self.context, store, start)
        for own in (self.payload.private, self.payload.personal):
            if own is not None:
                with_personal(model, store, own.ref)
        return model

    def _regulariser(self, spec: RegulariserSpec, sent: dict[str, Tensor]) -> Regulariser:
        prefix = f"{spec.name}/"
        own = {key.removeprefix(prefix): value for key, value in self.held.items() if key.startswith(prefix)}
        context = self.context
        train = context.train.model_copy(update={"lr": learning_rate(context.train, self.place.round)})
        local = RegulariserContext(self.seen, self.references, spec.values, own, sent, train, context.objective)
        return load_regulariser(spec.name).make(local)

    def run(self, deadline: float) -> tuple[int, dict[str, tuple[float, float]]]:
        """Train the model in place.

        Args:
            deadline: ``time.monotonic()`` after which training gives up.

        Returns:
            The number of steps, and the last epoch's sums of the loss's parts.

        Raises:
            TrainingError: If the loss is not finite or the time is up.
            TrainingStopped: If ``stop_training`` was set.
        """
        context, settings = self.context, self.context.train
        set_training_mode(self.model, context.bn_policy)
        if settings.freeze == "backbone":
            backbone_of(self.model).eval()
        refuse_single_values(self.model)
        step = self.objective.make(self.local)
        for regulariser in self.regularisers.values():
            regulariser.initialise(step, self._share_of_epoch)
        optimiser = make_optimiser(self.model, settings, self.place.round)
        warm = warm_up(optimiser, settings)
        sums: dict[str, list[Tensor | float]] = {}
        done, limit = 0, self.work.steps or (None if self.work.epochs else settings.steps)
        for batches in self._epochs(endless=limit is not None):
            sums, before_epoch = {}, done
            for batch in itertools.islice(batches, None if limit is None else limit - done):
                if stop_training.is_set():
                    raise TrainingStopped
                if time.monotonic() > deadline:
                    raise TrainingError(
                        f"not finished after federation.client_timeout_s={context.client_timeout_s:g} s"
                    )
                loss = self._optimiser_step(step, optimiser, batch)
                if warm is not None:
                    warm.step()
                for part, (total, weight) in loss.sums.items():
                    before = sums.setdefault(part, [0.0, 0.0])
                    before[0], before[1] = before[0] + total, before[1] + weight
                done += 1
            if done == before_epoch:
                raise TrainingError("an epoch has no batch")
            # Checked at the epoch's end only, because reading a number waits for the GPU.
            if not all(torch.isfinite(torch.as_tensor(pair[0])) for pair in sums.values()):
                raise TrainingError(f"the loss is not finite after {done} steps; try a smaller train.lr")
            if done == limit:
                break
        return done, {part: (float(pair[0]), float(pair[1])) for part, pair in sums.items()}

    def _epochs(self, endless: bool) -> "Iterator[Iterator[tuple[Tensor, ...]]]":
        """Yield the batches of every epoch: the objective's own, or the labelled images in random order."""
        context = self.context
        order = numpy_generator(context.seed, "batch order", **self.place.seed_parts())
        for number in itertools.count() if endless else range(self.work.epochs or context.train.epochs):
            yield self.objective.batches(
                Epoch(self.local, context.train, order, context.device, number, self.place.round)
            )

    def _share_of_epoch(self, share: float) -> "Iterator[tuple[Tensor, ...]]":
        """Yield the first batches of an epoch of its own, until ``share`` of the images is reached."""
        context, seen = self.context, 0
        order = numpy_generator(context.seed, "batch order before training", **self.place.seed_parts())
        for batch in self.objective.batches(
            Epoch(self.local, context.train, order, context.device, 0, self.place.round)
        ):
            yield batch
            seen += len(batch[0])
            if seen >= share * self.data.count(self.work.data):
                return

    def _optimiser_step(self, step: Step, optimiser: torch.optim.Optimizer, batch: tuple[Tensor, ...]) -> Loss:
        """Do one optimiser step with clipping; return the batch's loss."""
        context = self.context
        optimiser.zero_grad(set_to_none=True)
        device = torch.device(context.device).type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=context.precision == "bf16"):
            loss = step(*batch)
            for regulariser in self.regularisers.values():
                loss = regulariser.change(loss, batch[0])
        if loss.total.requires_grad:  # a batch without any unknown label has a constant loss
            loss.total.backward()
            if context.train.grad_clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), context.train.grad_clip)
            optimiser.step()
        return loss

    def kept_by_regularisers(self, steps: int) -> dict[str, Tensor]:
        """Return what the regularisers keep for the client's next training, after ``steps`` steps."""
        return {
            f"{name}/{key}": value
            for name, regulariser in self.regularisers.items()
            for key, value in regulariser.finish(steps).items()
        }


def freeze(model: nn.Module, trainable: tuple[str, ...] | None) -> list[nn.Parameter]:
    """Freeze the parameters whose names begin with none of the prefixes; return those that were not frozen before.

    Raises:
        TrainingError: If no parameter is left to train.
    """
    if trainable is None:
        return []
    named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    frozen = [value for name, value in named if not name.startswith(trainable)]
    if len(frozen) == len(named):
        raise TrainingError("no parameter is left to train: LocalWork.trainable names none")
    for value in frozen:
        value.requires_grad_(False)
    return frozen


def _tensors(store: "Store", sent: Any, device: str) -> dict[str, Tensor]:
    return {key: value.to(device) for key, value in store.get_state(sent.ref).items()} if sent else {}
