"""Settings of the evaluation."""

from typing import Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section

Protocol = Literal["global", "local", "matched", "new_clients"]


class EvaluationSettings(Section):
    """How, when and on which images models are evaluated."""

    every: int = Field(
        1, ge=1, description="Rounds from one evaluation to the next; the last round of a run is always evaluated."
    )
    protocols: list[Protocol] = Field(
        ["global", "local"],
        min_length=1,
        description="What is evaluated. global: the global model, or each client's own, on the pooled test set; local: "
        "each client's model on the client's test images, if the partition makes them; matched: each client's model on "
        "test images drawn like the labels of its training images; new_clients: the global model on the images of "
        "clients that never take part.",
    )
    new_clients: float = Field(
        0.0, ge=0, lt=1, description="Share of the clients that never take part, for the protocol new_clients."
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

    @model_validator(mode="after")
    def _held_out_clients_are_evaluated(self) -> Self:
        if len(set(self.protocols)) < len(self.protocols):
            raise ValueError(f"protocols names one twice: {', '.join(self.protocols)}")
        if ("new_clients" in self.protocols) != (self.new_clients > 0):
            raise ValueError(
                f"protocol new_clients and a share new_clients above 0 need each other; found protocols "
                f"{', '.join(self.protocols)} and new_clients {self.new_clients:g}"
            )
        return self


DEFAULTS = EvaluationSettings()
