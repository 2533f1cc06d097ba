"""A table with one row per image: CSV, TSV or Parquet, labels in one cell or one column per label.

Images are files next to the table, or their bytes are cells of a Parquet file, as in data sets on hubs.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.data.formats.shared.path_resolver import (
    ListedPath,
    ListingEntry,
    PathResolver,
    join_entries,
    make_listed_row,
    make_unlisted_row,
)
from tasks.data.formats.shared.tree import (
    NO_SITE,
    ONE_SITE,
    Entry,
    Tree,
    make_file_row,
    scan,
    split_from_name,
    unclassified_rows,
)
from tasks.data.formats.table.columns import Columns
from tasks.data.formats.table.detect import detect_one_hot, near_misses, recognise
from tasks.data.formats.table.label_cells import NULLS
from tasks.data.formats.table.label_separators import guess_separator
from tasks.data.formats.table.rows import SUFFIXES, OpenTable, TableRow, open_table, refuse_images_as_text
from tasks.data.formats.table.settings import Settings
from tasks.data.images.image import ImageBytes
from tasks.data.source.rules import NameFunction, compile_rule
from tasks.data.source.sample import RawSample
from tasks.data.text.equivalent_names import path_parts
from tasks.data.text.read_text import normalize

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

__all__ = ["KIND", "LAYOUT", "Settings", "default_classes", "near_misses", "read", "recognise"]

LAYOUT = "a CSV, TSV or Parquet file with a column of image paths and one of labels, next to or above the images"
KIND = "either"


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> list[str] | None:
    """Return the one-hot columns, or a Parquet file's class names; ``None``: the labels that are found count."""
    if options.one_hot is not None:
        return [normalize(name) for name in options.one_hot]
    folder = root if root.is_dir() else root.parent
    declared: list[str] | None = None
    for entry in _table_entries(root, folder, options, scan(folder, source)):
        table = open_table(entry.path, source.encoding)
        one_hot = detect_one_hot(entry.path, table, options, source.encoding)
        names = one_hot or table.names.get(Columns(table, options, entry.path, (), ()).labels or "")
        if declared is not None and names != declared:
            return None
        declared = names
    return declared or None


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once: tables, images in their cells, images in name order, listed images that are missing.

    Raises:
        UserError: There is no table or several, a column is missing, or the table cannot be read to its end.
    """
    folder = root if root.is_dir() else root.parent
    tree = scan(folder, source)
    entries = _table_entries(root, folder, options, tree)
    site_of = (
        compile_rule(source.site, "ingest.site", ONE_SITE)
        if source.site.rule in ("column", "pattern", "table")
        else None
    )
    uses: dict[str, list[ListingEntry]] = {}
    missing: dict[str, str] = {}
    heads, cells = [], []
    joins = False
    for entry in entries:
        table = open_table(entry.path, source.encoding)
        one_hot = detect_one_hot(entry.path, table, options, source.encoding)
        columns = Columns(table, options, entry.path, source.classes or (), one_hot)
        joins = joins or columns.joins
        heads.append(_table_row(entry, table, columns))
        if table.images and columns.image in table.images:
            cells.append(_images(entry, table, columns, site_of))
        else:
            uses, missing = _matched(table, columns, tree)
            _refuse_another_separator(entry, uses, options, set(source.classes or ()))
    if root.is_dir():
        yield from unclassified_rows(tree, {*uses, *(entry.name for entry in entries)})
    yield from heads
    for samples in cells:
        yield from samples
    column_site = site_of if source.site.rule == "column" else None
    others = tree.others + tree.redundant  # their content decides whether they are images
    others = [other for other in others if other.name in uses]
    for image in sorted(tree.images + others, key=lambda item: item.name):
        if image.name in uses:
            listed = uses[image.name]
            row = make_listed_row(image, join_entries(listed) if joins else listed, column_site)
            if row.reason == "ambiguous_pair" and not joins:
                row = replace(row, detail=f"{row.detail}; ingest.table.several_rows=join joins them")
            yield row
        elif root.is_dir():
            yield make_unlisted_row(image, entries[0].name, source.unlisted)
    for name, detail in sorted(missing.items()):
        yield RawSample(name, NO_SITE, None, "quarantined", "no_image", detail=detail)


def _table_entries(root: Path, folder: Path, options: Settings, tree: Tree) -> list[Entry]:
    """Return the table; several only if all are Parquet files with images in their cells."""
    tables = [entry for entry in tree.others if entry.path.suffix.lower() in SUFFIXES]
    wanted = root.name if root.is_file() else options.file
    if wanted is not None:
        tables = [entry for entry in tables if entry.name == PurePosixPath(wanted).as_posix()]
    if len(tables) > 1 and wanted is None:
        with_images = [entry for entry in tables if entry.path.suffix.lower() == ".parquet" and _imaged(entry)]
        if with_images:
            return with_images
    if len(tables) != 1:
        found = ", ".join(entry.name for entry in tables[:6]) or "none"
        hint = "name one in ingest.table.file" if tables else None
        expected = wanted or f"one file of {', '.join(SUFFIXES)}"
        raise UserError("no table, or several", where=folder, expected=expected, found=found, hint=hint)
    return tables


def _imaged(entry: Entry) -> bool:
    try:
        return bool(open_table(entry.path).images)
    except UserError:
        return False


def _table_row(entry: Entry, table: OpenTable, columns: Columns) -> RawSample:
    status, reason = ("fixed", "encoding") if table.encoding else ("ok", "metadata")
    notes = [table.encoding, f"labels are the columns {', '.join(columns.one_hot[:20])}" if columns.one_hot else ""]
    notes += ["a row for each box: joined" if columns.joins else ""]
    return make_file_row(entry, status, reason, "; ".join(filter(None, notes)))


def _images(entry: Entry, table: OpenTable, columns: Columns, site_of: NameFunction | None) -> Iterator[RawSample]:
    """Yield the rows whose cells are images one by one, so that only a few are in memory."""
    for number, row in enumerate(table.rows):
        use, name = columns.use(row), f"{entry.name}#{number}"
        site = site_of(name, row.cells) if site_of else entry.site
        data = row.images.get(columns.image)
        if data is None:
            listed = row.cells[columns.image]
            detail = f"the cell holds no bytes, only the path {listed}" if listed else "the cell is empty"
            yield RawSample(name, NO_SITE, None, "quarantined", "no_image", detail=detail)
            continue
        status, reason, detail = ("fixed", use.repair, "") if use.repair else ("ok", "", use.detail)
        if site == NO_SITE:
            status, reason, detail = "quarantined", "no_site", "ingest.site names no site for it"
        elif use.reason:
            status, reason = "quarantined", use.reason
        yield RawSample(
            name,
            site,
            None if status == "quarantined" else use.labels,
            status,
            reason,
            ImageBytes(data, PurePosixPath(row.cells[columns.image]).suffix),
            split=use.split or split_from_name(entry.name),
            detail=detail,
            boxes=use.boxes,
            fields=row.cells,
        )


def _matched(table: OpenTable, columns: Columns, tree: Tree) -> tuple[dict[str, list[ListingEntry]], dict[str, str]]:
    """Return the entries by image, and the listed paths whose image is missing, with the reason."""
    second = (entry.name for entry in tree.excluded + tree.redundant)
    images = (entry.name for entry in tree.images)
    resolver = PathResolver((entry.name for entry in tree.images + tree.others), second, images)
    rows: list[TableRow] = list(table.rows)
    if columns.one_hot:
        columns.see(rows)
    uses: dict[str, list[ListingEntry]] = defaultdict(list)
    missing: dict[str, str] = {}
    said: list[tuple[ListedPath, ListingEntry]] = []
    for row in rows:
        use = columns.use(row)
        refuse_images_as_text(row, columns.image, columns.path)
        listed = row.cells.get(columns.image, "")
        if listed and listed.casefold() not in NULLS:
            said.append((ListedPath(listed, row.place, ("", "images"), use.split), use))
        else:
            missing[f"({row.place})"] = "no image is named"
    for (one, use), found in zip(said, resolver.resolve([wanted for wanted, _ in said]), strict=True):
        if found.file is None:
            missing["/".join(path_parts(one.listed))] = found.detail
        else:
            uses[found.file].append(replace(use, inexact=found.detail) if found.detail else use)
    return uses, missing


def _refuse_another_separator(
    entry: Entry, uses: dict[str, list[ListingEntry]], options: Settings, declared: set[str]
) -> None:
    """Refuse labels such as ``rust|crack`` whose parts are labels of other rows, a sign of another separator."""
    labels = {label for entries in uses.values() for each in entries for label in each.labels or ()}
    found = guess_separator(labels, options.separator, declared)
    if found is not None:
        character, label, evidence = found
        raise UserError(
            f"the labels in one cell seem to be separated by {character!r}",
            where=entry.path,
            found=f"{label[:80]!r} besides {evidence[:200]}",
            hint=f"--set \"ingest.table.separator='{character}'\", or name the labels in ingest.classes if this is one",
        )
