"""Settings of the labelled images and the unlabelled pools (``pools``)."""

from typing import Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section


class LabelledSettings(Section):
    """Which training images count as labelled, for semi-supervised methods."""

    where: Literal["all", "clients", "server"] = Field(
        "all",
        description="all: every annotated image; clients: some of each client; server: some at the server, none at the "
        "clients. The labels of the others are hidden from training.",
    )
    per_class: int = Field(5, ge=1, description="Labelled images per primary label, of each client or of the server.")
    balanced: bool = Field(
        False,
        description="clients: allocate labelled images evenly first, then divide the rest by the scheme (FedMatch).",
    )
    streaming: int = Field(
        1, ge=1, description="Stream chunks of a client's unlabelled images, of which one is in use at a time."
    )
    rounds_per_chunk: int = Field(
        10, ge=1, description="streaming: rounds for which a chunk is in use; after the last comes the first again."
    )

    @property
    def stream(self) -> tuple[int, int] | None:
        """Return the number of chunks and the rounds of each; ``None`` without streaming."""
        return (self.streaming, self.rounds_per_chunk) if self.streaming > 1 else None

    @model_validator(mode="after")
    def _streaming_and_balanced_fit_where(self) -> Self:
        if self.streaming == 1:
            self.refuse_changed(("rounds_per_chunk",), "it is for streaming above 1")
        if self.balanced and self.where != "clients":
            raise ValueError("balanced needs labelled images at the clients; set where to clients")
        return self
