"""The section ``aggregation``: which aggregator combines updates, and what is done to updates before."""

from pydantic import Field

from models.settings.section import choice_section
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.update_transforms import TRANSFORMS, load_transform
from tasks.core.update_transforms.settings import TransformSettings
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
    """How the server combines updates, and what is done to each update before."""

    client_transforms: tuple[TransformSettings, ...] = Field(
        (),
        description="Applied in this order to a client's update before it is sent, each with its settings: "
        f"{_TRANSFORMS}.",
    )
    server_transforms: tuple[TransformSettings, ...] = Field(
        (), description="Applied in this order to every valid update before aggregation: the same."
    )

    @property
    def spec(self) -> AggregatorSpec:
        """The chosen aggregator with its settings as plain values."""
        return AggregatorSpec(self.name, self.chosen.model_dump(mode="json"))

    @property
    def transforms(self) -> list[str]:
        """Names of all transforms in use."""
        return [spec.name for spec in (*self.client_transforms, *self.server_transforms)]
