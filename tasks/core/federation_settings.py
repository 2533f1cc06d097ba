"""Settings of the federation: how many rounds, who takes part, and where the work runs."""

from typing import Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section
from tasks.core.sampling_settings import SamplingSettings

RESULT_SETTINGS = (  # what a result depends on
    "clients_per_round",
    "sampling",
    "max_mb_per_round",
    "required",
    "quorum",
    "bn_policy",
    "precision",
)


class StopSettings(Section):
    """When a run ends before its last round; like ``federation.rounds`` this is no part of the run's identity."""

    metric: str | None = Field(
        None,
        pattern=r"^val_[a-z0-9_]+$",
        description="Metric of the validation images that patience and target look at, such as val_macro_ap or "
        "val_loss; null: macro AP, or accuracy with one label an image. The less of a loss, the better.",
    )
    patience: int | None = Field(
        None, ge=1, description="The run ends after this many evaluations in a row without a new best value."
    )
    min_delta: float = Field(0.0, ge=0, description="A value is a new best one if it is better by more than this.")
    target: float | None = Field(None, description="The run ends when the metric is at least as good as this.")
    max_hours: float | None = Field(
        None,
        gt=0,
        description="The run ends after the round in which this time is over, counted over all sittings. The number of "
        "rounds then depends on the machine.",
    )
    max_mb: float | None = Field(
        None,
        gt=0,
        description="The run ends after the round in which so many MB of weights have travelled, to and from the "
        "clients (1 MB = 1e6 bytes).",
    )

    @property
    def by_metric(self) -> bool:
        """Return whether a metric can end the run."""
        return self.patience is not None or self.target is not None

    @model_validator(mode="after")
    def _parts_are_used(self) -> Self:
        if not self.by_metric:
            self.refuse_changed(("metric",), "neither patience nor target is set")
        if self.patience is None:
            self.refuse_changed(("min_delta",), "it is for patience, which is not set")
        return self


class FederationSettings(Section):
    """Rounds, participation and execution. Engine, workers and chunk size never change a result."""

    rounds: int = Field(10, ge=1, description="Rounds (FMMAN: cycles) R.")
    clients_per_round: int | None = Field(None, ge=1, description="Clients sampled per round; null: all.")
    sampling: SamplingSettings = Field(
        SamplingSettings.model_validate({}), description="How likely each client is among those of a round."
    )
    max_mb_per_round: float | None = Field(
        None,
        gt=0,
        description="Budget of a round: so many clients take part as the MB to and from them allow (1 MB = 1e6 bytes). "
        "A client is expected to cost what it did on average in the round before, in the first the model both ways.",
    )
    required: tuple[str, ...] = Field(
        (),
        description="Ids of clients that must take part: they answer a roll call before training, are among the "
        "clients of every round, and a round in which one of them drops out ends the run with an error.",
    )
    quorum: float = Field(0.5, gt=0, le=1, description="Share of a stage's clients that must complete.")
    bn_policy: Literal["avg", "total_variance", "local", "frozen"] = Field(
        "avg", description="BatchNorm statistics: averaged, pooled variance, kept by each client, or never updated."
    )
    engine: Literal["prefect", "local"] = Field("prefect", description="Prefect tasks, or plain calls.")
    workers: int = Field(2, ge=1, description="Tasks at the same time.")
    worker_type: Literal["auto", "processes", "threads"] = Field(
        "auto",
        description="What clients train in: processes use all cores, as Python threads share one interpreter; auto: "
        "processes on a CPU with more than one worker, else threads.",
    )
    clients_per_task: int | None = Field(
        None,
        ge=1,
        description="Clients trained one after the other in one task; null: one, and with engine prefect, where each "
        "task costs time, as many as give two tasks for each worker.",
    )
    clients_per_gpu: int = Field(1, ge=1, description="Clients of one process that train on a GPU at once.")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?|auto)$", description="cpu, cuda, cuda:N or auto.")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16 autocast; CUDA only (slower on a CPU).")
    client_timeout_s: float = Field(3600.0, gt=0, description="Longest training of one client in one stage, seconds.")
    stop: StopSettings = Field(
        StopSettings.model_validate({}), description="When the run ends before its last round; nothing is set: never."
    )

    def task_size(self, clients: int) -> int:
        """Return how many of a stage's clients share a task."""
        if self.clients_per_task is not None:
            return self.clients_per_task
        return max(1, -(-clients // (2 * self.workers))) if self.engine == "prefect" else 1

    @model_validator(mode="after")
    def _required_fit_into_a_round(self) -> Self:
        repeated = sorted({name for name in self.required if self.required.count(name) > 1})
        if repeated:
            raise ValueError(f"required names {', '.join(repeated)} more than once")
        if self.clients_per_round is not None and len(self.required) > self.clients_per_round:
            raise ValueError(
                f"{len(self.required)} clients are required, more than clients_per_round {self.clients_per_round}"
            )
        return self

    @model_validator(mode="after")
    def _sampling_is_used(self) -> Self:
        if self.sampling.name != "uniform" and self.clients_per_round is None and self.max_mb_per_round is None:
            raise ValueError(
                f"sampling {self.sampling.name} has no effect, as all clients take part: set clients_per_round"
            )
        return self

    @model_validator(mode="after")
    def _bf16_needs_cuda(self) -> Self:
        if self.precision == "bf16" and self.device == "cpu":
            raise ValueError("precision bf16 is for CUDA; on a CPU it is many times slower. Set precision to fp32")
        return self
