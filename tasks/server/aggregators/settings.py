"""The section ``aggregation``: which aggregator combines updates, and what is done to updates before."""

from typing import Self

from pydantic import Field, model_validator

from models.settings.section import choice_section
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.update_transforms import TRANSFORMS, load_transform
from tasks.core.update_transforms.settings import TransformSettings
from tasks.core.weighting_settings import WeightingSettings
from tasks.server.aggregators import AGGREGATORS, load_aggregator

_Aggregation = choice_section(
    "aggregator",
    AGGREGATORS,
    load_aggregator,
    "mean",
    "How the server combines updates; `fedscene methods` lists the aggregators.",
)


_TRANSFORMS = ", ".join(
    f"{{{', '.join(f'name: {name}' if key == 'name' else key for key in load_transform(name).Settings.model_fields)}}}"
    for name in TRANSFORMS
)


class AggregationSettings(_Aggregation):  # type: ignore[valid-type,misc]
    """How the server combines updates, how much each counts, and what is done to each before."""

    weighting: WeightingSettings = Field(
        WeightingSettings.model_validate({}),
        description="How much each client counts where the method leaves that to the settings.",
    )
    client_transforms: tuple[TransformSettings, ...] = Field(
        (),
        description="Applied in this order to a client's update before it is sent, each with its settings: "
        f"{_TRANSFORMS}.",
    )
    server_transforms: tuple[TransformSettings, ...] = Field(
        (), description="Applied in this order to every valid update before aggregation: the same."
    )

    downlink_transforms: tuple[TransformSettings, ...] = Field(
        (),
        description="Applied in this order to the change of a model since the one that clients have, before it is sent "
        "to them: those of client_transforms that compress.",
    )

    @model_validator(mode="after")
    def _models_are_compressed_only(self) -> Self:
        others = [spec.name for spec in self.downlink_transforms if not hasattr(spec, "error_feedback")]
        if others:
            raise ValueError(
                f"downlink_transforms compresses models on their way to clients, and {others[0]} does not compress: "
                "name bf16, int8 or topk"
            )
        return self

    @model_validator(mode="after")
    def _the_server_keeps_nothing(self) -> Self:
        keeping = [spec.name for spec in self.server_transforms if getattr(spec, "error_feedback", False)]
        if keeping:
            raise ValueError(
                f"{keeping[0]} at the server (server_transforms) cannot keep what error_feedback adds to a client's "
                "next update: set error_feedback to false, or name it in client_transforms"
            )
        return self

    @property
    def spec(self) -> AggregatorSpec:
        """The chosen aggregator with its settings as plain values."""
        return AggregatorSpec(self.name, self.chosen.model_dump(mode="json"))

    @property
    def transforms(self) -> list[str]:
        """Names of all transforms in use."""
        return [spec.name for spec in (*self.client_transforms, *self.server_transforms, *self.downlink_transforms)]
