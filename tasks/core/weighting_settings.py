"""Settings of the clients' weights in an average (docs/algorithms/dynamic_weights.md, docs/algorithms/fedfreq.md)."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section

Schedule = Literal["linear", "cosine", "step"]
Weights = Literal["samples", "uniform"] | dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class WeightingSettings(Section):
    """How much each client counts in an average."""

    name: Literal["samples", "uniform", "dynamic", "fedfreq"] = Field(
        "samples",
        description="samples: in proportion to the number of training images; uniform: all participants alike; "
        "dynamic: from `start` to `end` over the rounds; fedfreq: the more, the fewer rounds a client took part in.",
    )
    schedule: Schedule = Field(
        "linear",
        description="dynamic: linear, half a cosine, or step, which keeps `start` until the last round of the horizon.",
    )
    horizon: int | None = Field(
        None,
        ge=1,
        description="dynamic: the round in which `end` is reached, apart from federation.rounds, which may be raised "
        "later; with 1 the weights stay those of `start`.",
    )
    start: Weights = Field(
        "samples", description="dynamic: weights of round 1: samples, uniform, or a number for each client."
    )
    end: Weights = Field("uniform", description="dynamic: weights from the horizon on: the same.")
    mode: Literal["complement", "inverse"] = Field(
        "complement",
        description="fedfreq: complement: (1 - p) / (m - 1), with p a client's share in the participations of the m "
        "that reported; inverse: in proportion to 1 / participations.",
    )
    times_samples: bool = Field(
        False, description="fedfreq: multiplied by the number of images that a client reports, then divided by the sum."
    )

    @model_validator(mode="after")
    def _fedfreq_is_used(self) -> Self:
        if self.name != "fedfreq":
            self.refuse_changed(("mode", "times_samples"), f"it is for the weighting fedfreq, and name is {self.name}")
        return self

    @model_validator(mode="after")
    def _dynamic_is_complete(self) -> Self:
        if self.name != "dynamic":
            unused = ("schedule", "horizon", "start", "end")
            self.refuse_changed(unused, f"it is for the weighting dynamic, and name is {self.name}")
        elif self.horizon is None:
            raise ValueError("dynamic needs the round in which its end is reached: set aggregation.weighting.horizon")
        for name in ("start", "end"):
            given = getattr(self, name)
            if isinstance(given, dict) and not any(given.values()):
                raise ValueError(f"{name} gives no client a weight above 0; found {given}")
        return self

    def check(self, clients: Sequence[str]) -> None:
        """Require a number for each client where weights are given one by one.

        Raises:
            ValueError: If a client has none, or one is named that the partition does not have.
        """
        for name in ("start", "end"):
            given = getattr(self, name)
            if isinstance(given, dict) and given.keys() != set(clients):
                lacking, unknown = sorted(set(clients) - given.keys()), sorted(given.keys() - set(clients))
                raise ValueError(
                    f"aggregation.weighting.{name} needs one number for each client; without one: "
                    f"{', '.join(lacking) or '-'}; not in the partition: {', '.join(unknown) or '-'}"
                )
