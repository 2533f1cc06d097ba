"""Settings of the evaluation."""

from typing import Literal

from pydantic import Field

from models.base_settings import Section


class EvaluationSettings(Section):
    """How and when the global model is scored."""

    every: int = Field(
        1, ge=1, description="Rounds from one evaluation to the next; the round that a run ends with is scored as well."
    )
    zero_support: Literal["exclude", "zero", "zero_f1"] = Field(
        "exclude",
        description="Classes without a positive: out of every macro mean, in each as 0 (zero), or out of macro-AP and "
        "in macro precision, recall and F1 as 0 (zero_f1, the numbers of FedLGT's code).",
    )
    threshold: float = Field(0.5, gt=0, lt=1, description="A probability at or above it is a prediction.")


DEFAULTS = EvaluationSettings()
