"""A table, one row per image: CSV, TSV or Parquet, with the labels in one cell or in a column for each label."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.data.formats.listed import Finder, Mention, Wanted, listed_image, parts_of
from tasks.data.formats.table_rows import SUFFIXES, OpenTable, TableRow, open_table
from tasks.data.formats.tree import NO_SITE, ONE_SITE, Entry, Tree, file_row, image_row, left_over, scan
from tasks.data.rules import namer
from tasks.data.sample import RawSample
from tasks.data.text import normal

if TYPE_CHECKING:
    from tasks.data.ingest_settings import IngestSettings

LAYOUT = "a CSV, TSV or Parquet file with a column of image paths and one of labels, beside or above the images"
KIND = "either"
_IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name", "image_path", "img", "image_id")
_LABEL_COLUMNS = ("labels", "label", "class", "classes", "tags", "category")
_YES, _NO = frozenset({"1", "1.0", "true", "yes", "y"}), frozenset({"0", "0.0", "false", "no", "n", ""})
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_SPLITS |= {"test": "test", "testing": "test"}


class Settings(Section):
    """Which file is the table, and what its columns mean."""

    file: str | None = Field(None, description="The table, relative to ingest.path; null: the only one there.")
    image: str | None = Field(None, description="Column of image paths; null: the one called image, path, file ...")
    labels: str | None = Field(None, description="Column of labels; null: the one called labels, label, class ...")
    one_hot: list[str] | None = Field(
        None, description="Instead of labels: columns that are labels themselves, with cells 0 or 1."
    )
    separator: str = Field(";", min_length=1, description="Between the labels of one cell.")
    split: str | None = Field(None, description="Column that names the split: train, val or test; null: folders do.")
    empty: Literal["unlabelled", "negative"] = Field(
        "unlabelled", description="What an empty cell of labels says: nothing, or that the image has no label."
    )


def default_classes(root: Path, own: Settings, ingest: "IngestSettings") -> list[str] | None:
    """The columns of a one-hot table; else those that are found count."""
    return None if own.one_hot is None else [normal(name) for name in own.one_hot]


def recognise(root: Path, names: Sequence[str]) -> str:
    """A table whose head names an image and a label column."""
    for name in [root.name] if root.is_file() else names:
        path = root if root.is_file() else root / name
        if path.suffix.lower() in SUFFIXES and "/" not in name:
            try:
                columns = [column.casefold() for column in open_table(path, ask=False).columns]
            except UserError:
                continue
            if set(columns) & set(_IMAGE_COLUMNS) and set(columns) & set(_LABEL_COLUMNS):
                return f"{name} with the columns {', '.join(columns[:8])}"
    return ""


def read(root: Path, own: Settings, ingest: "IngestSettings", seed: int) -> Iterator[RawSample]:
    """Every file once: the table, then the images in name order, then those that are listed but missing.

    Raises:
        UserError: There is no table or several, a column is missing, or the table cannot be read to its end.
    """
    folder = root if root.is_dir() else root.parent
    tree = scan(folder, ingest)
    entry = _table_entry(root, folder, own, tree)
    table = open_table(entry.path, ingest.encoding)
    uses, missing = _matched(table, _Columns(table.columns, own, entry.path), tree)
    if root.is_dir():
        yield from left_over(tree, {entry.name, *uses})
    status, reason = ("fixed", "encoding") if table.encoding else ("ok", "metadata")
    yield file_row(entry, status, reason, table.encoding)
    site_of = namer(ingest.site, "ingest.site", ONE_SITE) if ingest.site.rule == "column" else None
    others = tree.others + tree.copies  # the content decides what is an image
    others = [other for other in others if other.name in uses]
    for image in sorted(tree.images + others, key=lambda item: item.name):
        if image.name in uses:
            yield listed_image(image, uses[image.name], site_of)
        elif root.is_dir():
            yield image_row(image, "no_annotation", f"not in {entry.name}")
    for listed, detail in sorted(missing.items()):
        yield RawSample(listed, NO_SITE, None, "quarantined", "no_image", detail=detail)


class _Columns:
    """The columns of a table by their meaning, and what a row says by them."""

    def __init__(self, columns: list[str], own: Settings, path: Path) -> None:
        self._columns, self._path, self._own = columns, path, own
        self.image = self._find("image", own.image, _IMAGE_COLUMNS)
        self._one_hot = [self._find("one_hot", name, ()) for name in own.one_hot or ()]
        self._labels = None if own.one_hot else self._find("labels", own.labels, _LABEL_COLUMNS)
        self._split = None if own.split is None else self._find("split", own.split, ())

    def use(self, row: TableRow) -> Mention:
        """What the row says."""
        if row.fault:
            return Mention(None, None, row.place, "bad_annotation", row.fault, row.cells)
        split = None
        if self._split is not None:
            split = _SPLITS.get(row.cells[self._split].casefold())
            if split is None:
                found = f"{row.place}: {self._split} is {row.cells[self._split]!r}, not train, val or test"
                return Mention(None, None, row.place, "bad_annotation", found, row.cells)
        if self._labels is None:
            wrong = [name for name in self._one_hot if row.cells[name].casefold() not in _YES | _NO]
            if wrong:
                found = f"{row.place}: {wrong[0]} is {row.cells[wrong[0]]!r}, not 0 or 1"
                return Mention(None, split, row.place, "bad_annotation", found, row.cells)
            labels = tuple(name for name in self._one_hot if row.cells[name].casefold() in _YES)
            return Mention(labels, split, row.place, fields=row.cells)
        cell = row.lists.get(self._labels, row.cells[self._labels].split(self._own.separator))
        labels = tuple(dict.fromkeys(label for label in map(normal, cell) if label))
        if labels or self._own.empty == "negative" or row.lists.get(self._labels) == []:
            return Mention(labels, split, row.place, fields=row.cells)
        return Mention(None, split, row.place, "no_annotation", f"{row.place}: no label", row.cells)

    def _find(self, key: str, name: str | None, usual: Sequence[str]) -> str:
        wanted = [normal(name)] if name is not None else [c for c in self._columns if c.casefold() in usual][:1]
        if not wanted or wanted[0] not in self._columns:
            raise UserError(
                "the table lacks a column",
                where=f"{self._path}: ingest.table.{key}",
                expected=name or f"one called {', '.join(usual)}",
                found=", ".join(self._columns),
            )
        return wanted[0]


def _table_entry(root: Path, folder: Path, own: Settings, tree: Tree) -> Entry:
    tables = [entry for entry in tree.others if entry.path.suffix.lower() in SUFFIXES]
    wanted = root.name if root.is_file() else own.file
    if wanted is not None:
        tables = [entry for entry in tables if entry.name == PurePosixPath(wanted).as_posix()]
    if len(tables) != 1:
        found = ", ".join(entry.name for entry in tables[:6]) or "none"
        hint = "name one in ingest.table.file" if tables else None
        expected = wanted or f"one file of {', '.join(SUFFIXES)}"
        raise UserError("no table, or several", where=folder, expected=expected, found=found, hint=hint)
    return tables[0]


def _matched(table: OpenTable, columns: _Columns, tree: Tree) -> tuple[dict[str, list[Mention]], dict[str, str]]:
    """What the rows say, by image; and the listed paths whose image is missing, with why."""
    second = (entry.name for entry in tree.excluded + tree.copies)
    finder = Finder((entry.name for entry in tree.images + tree.others), second)
    uses: dict[str, list[Mention]] = defaultdict(list)
    missing: dict[str, str] = {}
    said: list[tuple[Wanted, Mention]] = []
    for row in table.rows:
        use = columns.use(row)
        listed = row.cells.get(columns.image, "")
        if listed:
            said.append((Wanted(listed, row.place, ("", "images"), use.split), use))
        else:
            missing[f"({row.place})"] = "no image is named"
    for (one, use), found in zip(said, finder.match([wanted for wanted, _ in said]), strict=True):
        if found.file is None:
            missing["/".join(parts_of(one.listed))] = found.detail
        else:
            uses[found.file].append(replace(use, loose=found.detail) if found.detail else use)
    return uses, missing
