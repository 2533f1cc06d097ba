"""Settings of the evaluation."""

from typing import Literal

from pydantic import Field

from models.base_settings import Section


class EvaluationSettings(Section):
    """How and when the global model is evaluated."""

    every: int = Field(
        1, ge=1, description="Rounds from one evaluation to the next; the last round of a run is always evaluated."
    )
    zero_support: Literal["exclude", "zero", "zero_f1"] = Field(
        "exclude",
        description="Classes without a positive: excluded from every macro mean, counted as 0 in each (zero), or "
        "excluded from macro-AP and counted as 0 in macro precision, recall and F1 (zero_f1, as in FedLGT's code).",
    )
    threshold: float = Field(0.5, gt=0, lt=1, description="A probability at or above it is a prediction.")
    thresholds: Literal["fixed", "per_class"] = Field(
        "fixed",
        description="fixed: `threshold` for all labels; per_class: for each label the one with the highest F1 on the "
        "validation images, for several labels an image only.",
    )


DEFAULTS = EvaluationSettings()
