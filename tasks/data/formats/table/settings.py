"""Settings of a table."""

from typing import Literal

from pydantic import Field

from models.settings.section import Section


class Settings(Section):
    """Which file is the table, and what its columns mean."""

    file: str | None = Field(None, description="The table, relative to ingest.path; null: the only one found.")
    image: str | None = Field(None, description="Column of image paths; null: the one named image, path, file ...")
    labels: str | None = Field(None, description="Column of labels; null: the one named labels, label, class ...")
    one_hot: list[str] | None = Field(
        None,
        description="Instead of labels: columns that are labels themselves, with cells 0 or 1; null: all columns but "
        "the image column, if they hold nothing else.",
    )
    separator: str = Field(";", min_length=1, description="Separator between the labels of one cell.")
    split: str | None = Field(None, description="Column that names the split: train, val or test; null: folders do.")
    empty: Literal["unlabelled", "negative"] = Field(
        "unlabelled", description="How an empty cell of labels counts: unlabelled, or an image without any label."
    )
    several_rows: Literal["refuse", "join"] | None = Field(
        None,
        description="An image with several rows of different labels: refuse it, or join them; null: join in a table "
        "with columns of a box (xmin, ymin, xmax, ymax ...), which has a row for each box, else refuse.",
    )
