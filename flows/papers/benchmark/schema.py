"""Benchmark files: rows with their protocol, images, published values, and the claims that compare rows.

Settings are merged in this order, later ones on top: images, protocol, its ``small`` settings at scale small, the row's
presets and settings, its overrides for the scale, ``--set``.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from flows.papers.benchmark.bands import CLAIM, published_margin
from flows.papers.benchmark.curves import Statistic
from flows.papers.replicate.schema import Needs, Percent
from flows.papers.replicate.tables import table_path
from flows.settings.files import read_yaml
from models.errors import UserError
from models.settings.section import Section

ScaleName = Literal["small", "full"]


class Source(Section):
    """Where published values were found."""

    where: str = Field(description="Repository and file, or paper and table.")
    paper: str = Field("", description="The paper: authors, venue, arXiv number.")
    note: str = Field("", description="Seeds, and what the source leaves open.")


class Published(Section):
    """A published value of a row."""

    value: Percent
    source: str = Field(description="Key of `sources`.")
    std: float | None = Field(None, ge=0, description="Its printed standard deviation.")
    fault: str | None = Field(None, description="Why it is a bug or a divergence, and so no target.")


class Floor(Section):
    """A value that a row must exceed, in place of a band."""

    above: Percent
    reason: str


class Variant(Section):
    """One form in which the images are found."""

    needs: Needs
    usual: list[str] = Field([], description="Folders in which packages install it; used if --data does not have it.")
    settings: dict[str, Any] = Field({}, description="Settings that read it.")
    deviation: str | None = Field(None, description="How these images differ from the published ones.")


class Images(Section):
    """The images of a protocol."""

    title: str
    variants: list[Variant] = Field([], description="Accepted forms, best first; none: synthetic images.")
    settings: dict[str, Any] = Field({}, description="Settings of every variant.")
    train: int = Field(ge=1, description="Training images, for the estimate of the work.")
    test: int = Field(ge=1, description="Test images.")


class Small(Section):
    """The check of minutes."""

    settings: dict[str, Any] = Field({})
    rounds: int = Field(1, ge=1)
    seeds: list[int] = Field([0], min_length=1)


class Protocol(Section):
    """How the rows of a source are trained and measured."""

    images: str = Field(description="Key of `images`.")
    about: str = Field(description="The protocol in words.")
    settings: dict[str, Any] = Field({})
    rounds: int = Field(ge=1)
    seeds: list[int] = Field(min_length=1, description="Seeds of partition and training at scale full.")
    metric: str = Field("accuracy", description="Name of the metric in a round's record; a share, shown in percent.")
    pick: Literal["last", "best"] = Field("last", description="The last round's value, or the best over the rounds.")
    also: list[str] = Field([], description="Further metrics, shares, which not every row has.")
    small: Small = Small.model_validate({})
    deviations: list[str] = Field([], description="What we do differently.")


class Row(Section):
    """One published figure and how it is run here."""

    cell: str = Field(description="Key of `cells`.")
    title: str
    protocol: str = Field(description="Key of `protocols`.")
    presets: list[str] = Field([])
    settings: dict[str, Any] = Field({})
    overrides: dict[ScaleName, dict[str, Any]] = Field({})
    published: list[Published] = Field([])
    printed: str = Field("", description="The paper's figure on images that are not public: shown, no target.")
    pooled: bool = Field(False, description="Its band covers the values of all pooled rows of its cell.")
    floor: Floor | None = None
    not_yet: str | None = Field(None, description="Why it cannot be run yet.")
    deviations: list[str] = Field([])

    @property
    def targets(self) -> dict[str, float]:
        """Return source -> published value, without faults."""
        return {entry.source: entry.value for entry in self.published if entry.fault is None}


class Difference(Section):
    """Claim: one row is better than another by at least so many points."""

    kind: Literal["difference"] = "difference"
    cell: str
    better: str
    worse: str
    at_least: float = Field(description="Points, mean over the seeds that both have.")

    @property
    def rows(self) -> tuple[str, str]:
        """Return the two rows."""
        return self.better, self.worse


class FewerRounds(Section):
    """Claim: one row reaches a target in fewer rounds than another.

    The target is what the other row has reached after ``target_round`` rounds, seed by seed; compared are medians.
    """

    kind: Literal["rounds"] = "rounds"
    cell: str
    faster: str
    slower: str
    target_round: int = Field(ge=1)
    at_most: float = Field(gt=0, le=1, description="Largest ratio of the median rounds.")
    note: str = ""

    @property
    def rows(self) -> tuple[str, str]:
        """Return the two rows."""
        return self.faster, self.slower


class Paired(Section):
    """Claim on an ordering: a statistic of one row's curve is better than that of another, seed by seed.

    It is judged by the 90 % interval of the mean difference, at both scales: it is about our images, not about a
    published level.
    """

    kind: Literal["paired"] = "paired"
    cell: str
    text: str = Field(description="The claim in words.")
    better: str
    worse: str
    metric: str = Field("", description="A metric of the protocol's `also`; empty: its `metric`.")
    statistic: Statistic = Field("last", description="What is read from the curve by round.")
    lower: bool = Field(False, description="Less is better.")
    margin: float = Field(0.0, ge=0, description="Points by which `better` may be worse: the claim is non-inferiority.")
    worse_metric: str = Field("", description="The metric of the row `worse`, if it is another one.")
    equal: bool = Field(False, description="The claim is that both are the same in every seed.")

    @property
    def rows(self) -> tuple[str, str]:
        """Return the two rows."""
        return self.better, self.worse

    def metric_of(self, row: str) -> str:
        """Return the metric of one of the two rows, "" for its protocol's."""
        return self.worse_metric or self.metric if row == self.worse else self.metric


class Level(Section):
    """Claim: a statistic of a row's curve is above a value, judged by the 90 % interval of its mean over the seeds."""

    kind: Literal["level"] = "level"
    cell: str
    text: str = Field(description="The claim in words.")
    row: str
    metric: str = Field("", description="A metric of the protocol's `also`; empty: its `metric`.")
    statistic: Statistic = Field("last", description="What is read from the curve by round.")
    value: float = Field(0.0, description="The value, in the units of the page.")
    lower: bool = Field(False, description="The claim is that it is below.")

    @property
    def rows(self) -> tuple[str]:
        """Return the row."""
        return (self.row,)

    def metric_of(self, row: str) -> str:
        """Return the row's metric, "" for its protocol's."""
        return self.metric


Claim = Annotated[Difference | FewerRounds | Paired | Level, Field(discriminator="kind")]


class Benchmark(Section):
    """Published cells and how they are run here."""

    name: str
    title: str
    kind: Literal["benchmark"]
    about: str = ""
    sources: dict[str, Source]
    images: dict[str, Images]
    protocols: dict[str, Protocol]
    cells: dict[str, str] = Field(description="Name -> what it shows.")
    rows: dict[str, Row] = Field(min_length=1)
    claims: list[Claim] = Field([])
    notes: list[str] = Field([])

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        for name, row in self.rows.items():
            _known(f"rows.{name}.cell", row.cell, self.cells)
            _known(f"rows.{name}.protocol", row.protocol, self.protocols)
            for entry in row.published:
                _known(f"rows.{name}.published", entry.source, self.sources)
            if row.floor and row.pooled:
                raise ValueError(f"rows.{name}: a row has a band or a floor, not both")
        for name, protocol in self.protocols.items():
            _known(f"protocols.{name}.images", protocol.images, self.images)
        for claim in self.claims:
            _known("claims", claim.cell, self.cells)
            for name in claim.rows:
                _known("claims", name, self.rows)
                if isinstance(claim, Paired | Level) and (metric := claim.metric_of(name)):
                    _known("claims", metric, dict.fromkeys(self.protocols[self.rows[name].protocol].also))
        return self

    @model_validator(mode="after")
    def _differences_are_clear(self) -> Self:
        for claim in self.claims:
            if isinstance(claim, Difference) and ((found := self.margin(claim)) is None or found <= CLAIM):
                text = "no source has both" if found is None else f"the smallest published one is {found:.2f}"
                raise ValueError(
                    f"{claim.better} > {claim.worse}: a claim needs a margin above {CLAIM:g} points; {text}"
                )
        return self

    def margin(self, claim: Difference) -> float | None:
        """Return the smallest published margin of a claim."""
        return published_margin(self.rows[claim.better].targets, self.rows[claim.worse].targets)

    def band_values(self, name: str) -> list[float]:
        """Return the published values that a row's band is made of; none: the row has no band."""
        row = self.rows[name]
        rows = (
            [other for other in self.rows.values() if other.pooled and other.cell == row.cell] if row.pooled else [row]
        )
        return [] if row.floor else [value for other in rows for value in other.targets.values()]


def _known(where: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise ValueError(f"{where}: no such name {name}; known: {', '.join(known)}")


def is_benchmark(table: str) -> bool:
    """Return whether a shipped table or a file is a benchmark."""
    return read_yaml(table_path(table)).get("kind") == "benchmark"


def load_benchmark(table: str) -> Benchmark:
    """Return a benchmark, shipped or a file.

    Raises:
        UserError: If there is none, or it is not valid.
    """
    path = table_path(table)
    try:
        return Benchmark.model_validate(read_yaml(path) | {"name": path.stem})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors(include_url=False)]
        raise UserError("this is not a valid benchmark", where=path, found="; ".join(faults)) from error
