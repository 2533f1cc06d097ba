"""Settings of the attention between clients (docs/algorithms/fedscrap.md)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section

Coefficients = dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]


Reading = Literal[
    "centered_cosine",
    "update_cosine",
    "cosine",
    "rbf",
    "inverse_distance",
    "dot_literal",
    "scaled_dot",
    "distance_literal",
]


class AttentionSettings(Section):
    """How similar clients are found, layer by layer, and what is mixed."""

    attention: Reading = Field(
        "centered_cosine",
        description="What the weights between clients come from: cosines of the clients' layers without their mean, of "
        "their changes in this round, or of the layers themselves; distances, as a Gaussian-like kernel (rbf) or "
        "inverted; the paper's printed formulas (dot_literal, distance_literal), and dot products over sqrt(P).",
    )
    temperature: float | None = Field(
        None,
        gt=0,
        description="T of the softmax; null: 0.5 for centered_cosine and rbf, 0.2 for update_cosine, 0.1 for cosine, 1 "
        "for dot products. A small T keeps a client to itself, a large one gives the plain mean.",
    )
    granularity: Literal["module", "tensor", "block", "model"] = Field(
        "module",
        description="What has attention weights of its own: each module (weight and bias together), each tensor, each "
        "of `blocks`, or only the whole model.",
    )
    blocks: tuple[str, ...] = Field(
        (),
        description="granularity block: beginnings of parameters' names, such as backbone.layer1.; modules outside "
        "of all blocks have weights of their own.",
    )
    self_weight: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Weight of a client's own model, the others share the rest; null: the attention decides "
        "(inverse_distance: 1 / N). 1 is local training.",
    )
    top_k: int | None = Field(
        None,
        ge=1,
        description="Only the k largest weights of a client count and are stored, for hundreds of clients; null: all.",
    )
    buffers: Literal["pooled", "linear", "own"] = Field(
        "pooled",
        description="BatchNorm's statistics: mixed with their module's weights, variances as those of the mixture "
        "(pooled) or as plain means (linear), or each client's own.",
    )
    query: Coefficients = Field(
        default_factory=dict, description="Dot products: client -> a_q, which multiplies its own scores; default 1."
    )
    key: Coefficients = Field(
        default_factory=dict, description="Dot products: client -> a_k, which multiplies others' scores for it."
    )

    @model_validator(mode="after")
    def _all_values_are_used(self) -> Self:
        if self.attention in ("inverse_distance", "distance_literal"):
            self.refuse_changed(["temperature"], f"{self.attention} has no softmax")
        if (self.query or self.key) and self.attention not in ("dot_literal", "scaled_dot"):
            raise ValueError(f"query and key are for dot products, and attention is {self.attention}; leave them empty")
        if (self.granularity == "block") != bool(self.blocks):
            raise ValueError(
                f"granularity block needs blocks, and only it uses them; found {self.granularity} and "
                f"{len(self.blocks)} blocks"
            )
        if self.top_k == 1 and self.self_weight is not None:
            raise ValueError("top_k counts the client itself, so with self_weight it must be at least 2; found 1")
        return self
