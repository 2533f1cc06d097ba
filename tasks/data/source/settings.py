"""Settings that all readers share: where images are, which are read, how sites and groups are named."""

from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from models.settings.section import Section
from tasks.data.images.resizing import Resize
from tasks.data.source.rules import NameRule
from tasks.data.text.patterns import pattern_problem
from tasks.data.text.read_text import normalize, valid_encoding

Unlabelled = Literal["refuse", "keep", "skip"]


class SourceSettings(Section):
    """What is read, and how sites, groups and labels are named."""

    source: str = Field(
        "synthetic", description="Format of the source: one of the sections below, whose settings then apply."
    )
    path: Path | None = Field(None, description="Folder or file to read; needed by every source but synthetic.")
    include: list[str] | None = Field(
        None, description="Patterns of the images that are read, such as `*.jpg` or `photos/**`; null: all."
    )
    exclude: list[str] = Field(
        [], description="Patterns of files and folders that are left out, such as `*_mask.png` or `masks`."
    )
    image_size: int = Field(
        64,
        ge=16,
        description="Side in pixels of the stored images, which are squares.",
    )
    resize: Resize = Field(
        "squash",
        description="How an image becomes a square. squash: its aspect ratio is not kept; letterbox: it is, and the "
        "rest of the square has the colour `background`; crop: it is, and only the central square stays.",
    )
    classes: list[str] | None = Field(
        None, description="The labels in their order; null: those that the source declares, else all that are found."
    )
    encoding: str | None = Field(
        None,
        description="Encoding of annotations, tables and lists that are not UTF-8, such as gb18030 or cp1252; null: "
        "the declared or most plausible one, and an error that asks if that is unclear.",
    )
    site: NameRule = Field(NameRule.model_validate({}), description="How an image's site is derived.")
    group: NameRule = Field(
        NameRule.model_validate({}),
        description="How images of one source photograph are grouped; a group is never divided between splits.",
    )
    unlisted: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="Images of a folder that its table, COCO JSON or FLAIR JSON does not list: they count as unusable, "
        "or are left out. If ingest.path is the table or JSON itself, only listed images are read.",
    )
    unlabelled: Unlabelled = Field(
        "refuse",
        description="Images without an annotation. refuse: they count as unusable; keep: they become unlabelled "
        "training images, for semi-supervised methods; skip: they are left out and counted.",
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        return None if value is None else valid_encoding(value)

    @field_validator("classes")
    @classmethod
    def _different_labels(cls, value: list[str] | None) -> list[str] | None:
        if value is None:
            return None
        names = [normalize(name) for name in value]
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if not names or not all(names) or repeated:
            raise ValueError(
                f"needs one or more different, non-empty labels; repeated: {', '.join(repeated) or 'none'}"
            )
        return names

    @field_validator("include", "exclude", mode="before")
    @classmethod
    def _one_pattern(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("include", "exclude")
    @classmethod
    def _patterns(cls, value: list[str] | None) -> list[str] | None:
        problems = [problem for pattern in value or () if (problem := pattern_problem(pattern))]
        if problems:
            raise ValueError("; ".join(problems))
        return value
