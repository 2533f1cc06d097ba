"""Settings of an ingest: the common ones, and one section for each format."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, create_model, field_validator, model_validator

from models.settings.section import Section
from tasks.core.problem_kind import Kind
from tasks.data.formats import FORMATS, load_format, problem_kind
from tasks.data.images.decode import DEFAULT_BACKGROUND, DEFAULT_MAX_PIXELS, DEFAULT_MIN_SIDE, Limits
from tasks.data.images.pixels import Gray16
from tasks.data.source.settings import SourceSettings
from tasks.data.split import SplitSettings
from tasks.data.text.read_text import normalize

Channel = Annotated[int, Field(ge=0, le=255)]

# One section per format, the ``Settings`` of its reader module.
_Formats: type[Section] = create_model(  # type: ignore[call-overload]
    "_Formats",
    __base__=Section,
    **{name: (load_format(name).Settings, Field(default_factory=load_format(name).Settings)) for name in FORMATS},
)


class IngestSettings(SourceSettings, _Formats):
    """Where images come from and how they become a data set."""

    kind: Literal["auto", "multi_label", "single_label"] = Field(
        "auto",
        description="Kind of problem: any number of labels per image, or exactly one. auto: single_label for class "
        "folders, idx, CIFAR-10 and synthetic sets of that kind, multi_label for all others.",
    )
    companions: Literal["ask", "drop", "keep"] = Field(
        "ask",
        description="Masks next to photographs of the same name (a.png next to a.jpg, a_mask.png, masks/a.png). ask: "
        "refuse and say how to leave them out; drop: leave them out; keep: train on them, each in the split of its "
        "photograph.",
    )
    label_aliases: dict[str, str] = Field(
        {}, description="Label as found -> declared label, for misspelt annotations; each use is counted."
    )
    near_duplicates: int | None = Field(
        None,
        ge=0,
        le=10,
        description="Images whose 64-bit perceptual hashes differ in at most N bits stay in one split; null: off.",
    )
    keep_negatives: bool = Field(True, description="Keep images that are annotated as holding no label.")
    max_bad_share: float = Field(
        0.02, ge=0, le=1, description="Largest share of unusable inputs (an image with its annotation is one)."
    )
    min_side: int = Field(DEFAULT_MIN_SIDE, ge=1, description="Shortest side in pixels of an image that is used.")
    max_pixels: int = Field(
        DEFAULT_MAX_PIXELS, ge=1, le=2 * DEFAULT_MAX_PIXELS, description="Most pixels of an image that is decoded."
    )
    background: tuple[Channel, Channel, Channel] = Field(
        DEFAULT_BACKGROUND, description="RGB colour behind transparent pixels and beside letterboxed images."
    )
    gray16: Gray16 = Field(
        "full",
        description="Which 16-bit grey value is white. full: 65535, and images that would be nearly black are refused; "
        "bits: the largest value of the fewest bits (8, 10, 12, 14) that hold the image; stretch: the image's largest "
        "value, and its smallest is black.",
    )
    split: SplitSettings = Field(SplitSettings.model_validate({}), description="Train, validation and test.")

    @property
    def format_options(self) -> Any:
        """The section of the chosen format."""
        return getattr(self, self.source)

    @property
    def problem_kind(self) -> Kind:
        """The kind of problem: as set, or as the format's sources pose it."""
        return problem_kind(load_format(self.source), self.format_options) if self.kind == "auto" else self.kind

    @property
    def limits(self) -> Limits:
        """What decides whether and how an image is decoded."""
        # Pillow's documentation: reducing first to three times the target size is practically indistinguishable.
        return Limits(self.max_pixels, self.min_side, self.background, enough=3 * self.image_size, gray16=self.gray16)

    @field_validator("source")
    @classmethod
    def _known_source(cls, value: str) -> str:
        if value not in FORMATS:
            raise ValueError(f"no such format; known are {', '.join(FORMATS)}")
        return value

    @field_validator("label_aliases")
    @classmethod
    def _normals(cls, value: dict[str, str]) -> dict[str, str]:
        return {normalize(found): normalize(meant) for found, meant in value.items()}

    @model_validator(mode="after")
    def _aliases_point_to_labels(self) -> Self:
        chains = sorted(set(self.label_aliases) & set(self.label_aliases.values()))
        if chains:
            raise ValueError(f"label_aliases: {', '.join(chains)} is both an alias and the target of one")
        if self.classes is not None:
            problem = find_alias_problem(self.label_aliases, self.classes)
            if problem:
                raise ValueError(problem)
        return self


def find_alias_problem(aliases: dict[str, str], classes: list[str]) -> str | None:
    """Return what is wrong with an alias table given the declared labels, or ``None``."""
    lost = sorted(f"{found} -> {meant}" for found, meant in aliases.items() if meant not in classes)
    if lost:
        shown = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
        heading = "; if it is the heading of a file, write found,meant" if len(lost) == 1 and len(aliases) > 1 else ""
        return f"label_aliases must point to a declared label: {shown}{heading}"
    hidden = sorted(set(aliases) & set(classes))
    return f"label_aliases: {', '.join(hidden)} is a declared label itself" if hidden else None
