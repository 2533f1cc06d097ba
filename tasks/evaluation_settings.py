"""Settings of the evaluation."""

from typing import Literal

from pydantic import Field

from models.base_settings import Section


class EvaluationSettings(Section):
    """How and when the global model is scored."""

    every: int = Field(
        1, ge=1, description="Rounds from one evaluation to the next; the round that a run ends with is scored as well."
    )
    zero_support: Literal["exclude", "zero"] = Field(
        "exclude",
        description="Classes without a positive: left out of every macro mean, or in it as 0 (as FedLGT's P and R).",
    )
    threshold: float = Field(0.5, gt=0, lt=1, description="A probability at or above it is a prediction.")


DEFAULTS = EvaluationSettings()
