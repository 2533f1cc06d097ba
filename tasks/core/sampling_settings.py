"""Which clients a round draws: all alike, or some more often than others."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section


class SamplingSettings(Section):
    """How likely each client is drawn for a round of ``clients_per_round``."""

    name: Literal["uniform", "zipf", "given"] = Field(
        "uniform",
        description="uniform: all clients alike; zipf: in proportion to 1 / rank^exponent, the rank by id; "
        "given: in proportion to `weights`. Clients are drawn one after the other, without replacement.",
    )
    exponent: float = Field(1.0, gt=0, allow_inf_nan=False, description="zipf: the exponent.")
    weights: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        {}, description="given: a number above 0 for each client."
    )

    @model_validator(mode="after")
    def _parts_are_used(self) -> Self:
        if self.name != "zipf":
            self.refuse_changed(("exponent",), f"it is for the sampling zipf, and name is {self.name}")
        if self.name != "given":
            self.refuse_changed(("weights",), f"it is for the sampling given, and name is {self.name}")
        elif not self.weights:
            raise ValueError("sampling given needs a number for each client: set federation.sampling.weights")
        return self

    def check(self, clients: Sequence[str]) -> None:
        """Require a number for each client where weights are given one by one.

        Raises:
            ValueError: If a client has none, or one is named that the partition does not have.
        """
        if self.name == "given" and self.weights.keys() != set(clients):
            lacking, unknown = sorted(set(clients) - self.weights.keys()), sorted(self.weights.keys() - set(clients))
            raise ValueError(
                f"federation.sampling.weights needs one number for each client; without one: "
                f"{', '.join(lacking) or '-'}; not in the partition: {', '.join(unknown) or '-'}"
            )

    def weight_of(self, clients: Sequence[str]) -> dict[str, float]:
        """Return each client's weight in a draw.

        Args:
            clients: All clients of the partition.
        """
        if self.name == "given":
            return {client: self.weights[client] for client in clients}
        if self.name == "zipf":
            return {client: (rank + 1) ** -self.exponent for rank, client in enumerate(sorted(clients))}
        return dict.fromkeys(clients, 1.0)
