"""Settings of the federation: how many rounds, who takes part, and where the work runs."""

from typing import Literal, Self

from pydantic import Field, model_validator

from models.base_settings import Section


class FederationSettings(Section):
    """Rounds, participation and execution. Engine, workers and chunk size never change a result."""

    rounds: int = Field(10, ge=1, description="Rounds (FMMAN: cycles) R.")
    clients_per_round: int | None = Field(None, ge=1, description="Clients sampled per round; null: all.")
    quorum: float = Field(0.5, gt=0, le=1, description="Share of a stage's clients that must complete.")
    bn_policy: Literal["avg", "total_variance", "local", "frozen"] = Field(
        "avg", description="BatchNorm statistics: averaged, pooled variance, kept by each client, or never updated."
    )
    engine: Literal["prefect", "local"] = Field("prefect", description="Prefect tasks, or plain threads.")
    workers: int = Field(2, ge=1, description="Tasks at the same time.")
    clients_per_task: int = Field(1, ge=1, description="Clients trained one after the other in one task.")
    clients_per_gpu: int = Field(1, ge=1, description="Clients of one process that train on a GPU at once.")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?|auto)$", description="cpu, cuda, cuda:N or auto.")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16 autocast; CUDA only (slower on a CPU).")
    client_timeout_s: float = Field(3600.0, gt=0, description="Longest training of one client in one stage, seconds.")

    @model_validator(mode="after")
    def _bf16_needs_cuda(self) -> Self:
        if self.precision == "bf16" and self.device == "cpu":
            raise ValueError("precision bf16 is for CUDA; on a CPU it is many times slower. Set precision to fp32")
        return self
