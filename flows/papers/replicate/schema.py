"""What a table file may contain."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from models.errors import UserError
from models.settings.section import Section

METRICS = ("macro_ap", "cf1", "micro_ap", "micro_f1")  # the columns of the paper's tables, in its order
Percent = Annotated[float, Field(ge=0, le=100)]


class Row(Section):
    """One row: its settings, on top of those of the scale and of the data set."""

    presets: list[str] = Field([], description="Shipped presets, in order.")
    settings: dict[str, Any] = Field({}, description="Settings over the presets.")
    overrides: dict[Literal["small", "full"], dict[str, Any]] = Field({}, description="Settings for one scale only.")
    local_trainings_per_round: Literal[1, 2] = Field(1, description="Local trainings of a client in a round.")
    note: str | None = Field(None, description="A note for the reader.")

    def overrides_at(self, scale: str) -> dict[str, Any]:
        """Return the row's settings for one scale only."""
        return self.overrides.get(scale, {})  # type: ignore[call-overload]


class Scale(Section):
    """Size of the data, the networks and the training."""

    presets: list[str] = Field([], description="Shipped presets, in order.")
    settings: dict[str, Any] = Field({}, description="Settings over the presets.")
    rounds: int = Field(ge=1, description="Rounds R; rows that train clients once a round continue to 2R.")
    seeds: list[int] = Field(min_length=1, description="Seeds of the training, each once.")
    data_seed: int = Field(7, ge=0, description="Seed of synthesis, split and partition of the images.")
    note: str = Field("", description="What the figures mean at this scale.")
    requires: dict[str, str] = Field({}, description="Setting that --set must give -> what it is.")

    @model_validator(mode="after")
    def _seeds_are_distinct(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must differ, found {self.seeds}")
        return self


class Needs(Section):
    """Images that the user provides."""

    folder: str = Field(description="Name of the folder below --data.")
    origin: str = Field(description="Where to get it.")


class DataSet(Section):
    """The images of a table at one scale."""

    title: str = Field(description="What the images are.")
    presets: list[str] = Field([], description="Shipped presets, in order.")
    settings: dict[str, Any] = Field({}, description="Settings over the presets.")
    needs: Needs | None = Field(None, description="A folder of images; null: synthetic images.")
    note: str | None = Field(None, description="How they differ from the paper's.")


class Table(Section):
    """A table of a paper, and how its rows are run here."""

    name: str = Field(description="The file's name.")
    title: str = Field(description="What the table shows.")
    source: str = Field("", description="Paper and number of the table.")
    data: str = Field(description="Key of `datasets`.")
    rows: dict[str, Row] = Field(min_length=1, description="Name as in the paper -> row, in order.")
    main: list[str] = Field([], description="Rows of the plot of classes.")
    paper: dict[str, tuple[Percent, Percent, Percent, Percent]] = Field(
        {}, description="Row -> printed macro-AP, macro-F1, micro-AP, micro-F1 in percent."
    )
    scales: dict[Literal["small", "full"], Scale]
    datasets: dict[str, dict[Literal["small", "full"], DataSet]]
    notes: list[str] = Field([], description="Notes for the reader.")

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        if self.data not in self.datasets:
            raise ValueError(f"data: no such data set {self.data}; known: {', '.join(self.datasets)}")
        for key, names in (("paper", self.paper), ("main", self.main)):
            unknown = [name for name in names if name not in self.rows]
            if unknown:
                raise ValueError(f"{key} names rows that the table does not have: {', '.join(unknown)}")
        return self

    def scale(self, name: str) -> Scale:
        """Return the named scale.

        Raises:
            UserError: If the table does not have it.
        """
        if name not in self.scales or name not in self.datasets[self.data]:
            known = ", ".join(scale for scale in self.scales if scale in self.datasets[self.data])
            raise UserError("the table has no such scale", where=self.name, expected=known, found=name)
        return self.scales[name]

    def dataset(self, scale: str) -> DataSet:
        """Return the images at one scale."""
        return self.datasets[self.data][scale]  # type: ignore[index]
