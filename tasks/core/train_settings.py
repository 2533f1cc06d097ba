"""Settings of the local loop."""

from typing import Literal, Self

from pydantic import Field, model_validator

from models.base_settings import Section


class TrainSettings(Section):
    """How a client trains in one stage. A fresh optimiser is made for every client, stage and round."""

    epochs: int = Field(2, ge=1, description="Passes over the client's images in one stage (paper: 10).")
    batch_size: int = Field(16, ge=2, description="Images per step. A last batch of one image joins the one before.")
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="Optimiser of the local loop.")
    lr: float = Field(5e-4, gt=0, description="Learning rate (paper: 5e-4).")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum; used by sgd only.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty (adamw: decoupled).")
    grad_clip: float | None = Field(10.0, gt=0, description="Largest gradient norm; null switches clipping off.")
    flip: bool = Field(False, description="Random horizontal flips. Leave off where left and right are labels.")
    shift: int = Field(0, ge=0, description="Random shift of up to this many pixels, edges repeated.")

    @model_validator(mode="after")
    def _momentum_needs_sgd(self) -> Self:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is used by optimizer sgd only, and optimizer is {self.optimizer}; set it to 0")
        return self
