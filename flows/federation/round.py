"""What every round has: its participants, its record, its tasks, and generators for its draws."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from flows.engine.engines import Engine
from flows.federation.progress import Progress
from models.errors import UserError
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.randomness import numpy_generator
from tasks.core.records import ModelRef, RoundRecord, StageLog
from tasks.core.round_state import RoundState
from tasks.core.round_summary import megabytes

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What all rounds of a run have in common.

    Attributes:
        context: The run, as passed to tasks.
        settings: The federation's settings.
        method_name: The method's name.
        method: The method's own settings.
        clients: All clients of the partition, id -> number of labelled training images.
        engine: Runs the tasks.
        progress: Notified of every stage.
        unlabelled: Client id -> number of training images without labels.
        server_images: Number of the server's labelled images.
    """

    context: RunContext
    settings: FederationSettings
    method_name: str
    method: Any
    clients: Mapping[str, int]
    engine: Engine
    progress: Progress
    unlabelled: Mapping[str, int] = field(default_factory=dict)
    server_images: int = 0


class Round:
    """One round of a run.

    Args:
        setup: What all rounds have in common.
        number: The round, from 1.
        state: What the round starts from; the federation works on a copy.
        last: The round before, if there is one.

    Attributes:
        state: The copy, which the method gets, changes and returns.
        record: What is kept of the round.
        keeping: Client -> prefixes of the tensors of its model that it kept in this round.
        is_evaluated: Whether the models of this round are evaluated (``evaluation.every``, or the last round).
    """

    def __init__(self, setup: Setup, number: int, state: RoundState, last: RoundRecord | None = None) -> None:
        self.setup, self.number, self.state, self.last = setup, number, state.copy(), last
        self.context, self.settings, self.method = setup.context, setup.settings, setup.method
        self.clients, self.engine, self.progress = setup.clients, setup.engine, setup.progress
        self.record = RoundRecord(round=number, state=self.state)
        self.keeping: dict[str, tuple[str, ...]] = {}
        self.is_evaluated = True

    def sample(self) -> list[str]:
        """Return the round's participants in id order: all, or ``sample_size`` of them without replacement.

        They are drawn as ``federation.sampling`` says. Required clients are always among them.

        Raises:
            UserError: As ``sample_size``.
        """
        count, required = self.sample_size(), self.settings.required
        if count is None:
            return self.choose(sorted(self.clients))
        others = sorted(self.clients.keys() - set(required))
        sampling = self.settings.sampling
        weights = None if sampling.name == "uniform" else sampling.weight_of(list(self.clients))
        return self.choose([*required, *self.draw("sample clients", count - len(required), others, weights)])

    def sample_size(self) -> int | None:
        """Return the number of participants: ``clients_per_round``, or fewer if the round's budget needs it.

        ``None`` stands for all clients.

        Raises:
            UserError: If ``max_mb_per_round`` is too small for one client, or for the required ones.
        """
        asked, budget = self.settings.clients_per_round, self.settings.max_mb_per_round
        if budget is None:
            return asked
        if self.last is not None:
            cost = megabytes(self.last) / max(1, len(self.last.participants))
        else:
            cost = 2 * self.state.global_model.bytes / 1e6
        affordable, least = math.floor(budget / cost + 1e-9), max(1, len(self.settings.required))
        if affordable < least:
            raise UserError(
                f"the budget of round {self.number} is too small for {least} client{'s' if least > 1 else ''}",
                where="federation.max_mb_per_round",
                expected=f"at least {least * cost:.4g} MB, as a client is expected to cost {cost:.4g} MB",
                found=f"{budget:g} MB",
            )
        if affordable >= (asked or len(self.clients)):
            return asked
        self.note(f"{affordable} clients take part: a client is expected to cost {cost:.4g} of {budget:g} MB")
        return affordable

    def draw(
        self,
        purpose: str,
        count: int,
        among: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> list[str]:
        """Return ``count`` clients, drawn without replacement, in id order; all of them if there are no more.

        Args:
            purpose: Part of the seed.
            count: How many.
            among: Ids to draw from, in order; default: all clients.
            weights: Client -> weight above 0: one after the other is drawn in proportion to these; default: all alike.
        """
        ids = sorted(self.clients) if among is None else list(among)
        if count >= len(ids):
            return ids
        total = sum(weights[client] for client in ids) if weights else 0.0
        shares = [weights[client] / total for client in ids] if weights else None
        return sorted(self.generator(purpose).choice(ids, size=count, replace=False, p=shares).tolist())

    def generator(self, purpose: str) -> "np.random.Generator":
        """Return the round's generator for a purpose, which is part of the seed."""
        return numpy_generator(self.context.seed, purpose, self.number)

    def choose(self, ids: Sequence[str]) -> list[str]:
        """Make these clients the round's participants, in id order: a method's own choice."""
        self.record.participants = sorted(ids)
        return self.record.participants

    def server_task(self, function: Callable[..., T], *args: Any, name: str, clients: int = 0) -> T:
        """Run ``function(context, *args)`` as a task and log it as a stage of the round.

        Args:
            function: A module-level function.
            args: Its arguments after the context.
            name: Name of the stage and its task.
            clients: How many clients the stage is about.
        """
        with self.logged(name, clients):
            result: T = self.engine.run(function, f"round {self.number}: {name}", self.context, *args)
        return result

    def client_losses(
        self, model: ModelRef, *, name: str, split: str = "val", clients: Sequence[str] | None = None
    ) -> dict[str, tuple[float, int]]:
        """Return the loss of a model at clients, whether they take part or not.

        Args:
            model: The model.
            name: Name of the stage.
            split: The local images to evaluate it on: ``val`` or ``train``.
            clients: The clients that are sent the model; default: all.

        Returns:
            Client id -> (mean loss of the kind of problem, number of images); the loss is NaN without images.
        """
        ids = sorted(self.clients if clients is None else clients)
        with self.logged(name, len(ids)) as log:
            title = f"round {self.number}: {name}"
            losses: dict[str, tuple[float, int]] = self.engine.run(
                "evaluate-clients", title, self.context, ids, model, split
            )
            log.bytes_down = log.bytes_down_naive = len(ids) * model.bytes
        return losses

    def note(self, text: str) -> None:
        """Record what deviated from the plan, in plain words."""
        self.record.notes.append(text)

    @contextlib.contextmanager
    def logged(self, name: str, clients: int) -> Iterator[StageLog]:
        """Report a stage's begin; record its seconds at its end."""
        began, log = time.monotonic(), StageLog(name, clients=clients)
        self.progress.stage(self.number, name, clients)
        yield log
        log.seconds = time.monotonic() - began
        self.record.stages.append(log)
