"""The meaning of a table's columns, and of one row by them."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.data.formats.shared.path_resolver import ListingEntry
from tasks.data.formats.table.label_cells import NULLS, read_cell
from tasks.data.formats.table.rows import OpenTable, TableRow
from tasks.data.source.sample import Boxes
from tasks.data.text.read_text import normalize

if TYPE_CHECKING:
    from tasks.data.formats.table.settings import Settings

#: Usual names of columns, the most specific first; compared in lower case and without blanks, ``-`` and ``_``.
IMAGE_COLUMNS = (
    "image", "path", "file", "filename", "imagepath", "imagefile", "imagename", "filepath", "img", "imgname",
    "imageid", "id",
)  # fmt: skip
LABEL_COLUMNS = ("labels", "label", "class", "classes", "tags", "category", "categories", "labelname", "classname")
_BOX_COLUMNS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
    ("bboxx1", "bboxy1", "bboxx2", "bboxy2"),
)
_CORNER_AND_SIZE = (("x", "y", "width", "height"), ("x", "y", "w", "h"), ("bboxx", "bboxy", "bboxwidth", "bboxheight"))
_BOX_CELLS = ("bbox", "box", "boundingbox")
_OTHER_COLUMNS = frozenset(
    {"split", "subset", "set", "partition", "site", "client", "user", "source", "group", "width", "height", "w", "h"}
    | {"size", "date", "time", "camera", "comment", "comments", "note", "notes", "index", "unnamed:0", ""}
)
# Columns of 0 and 1 that are seldom labels.
_FLAGS = frozenset(
    {"verified", "valid", "isvalid", "deleted", "train", "test", "val", "fold", "iscrowd", "crowd", "difficult"}
    | {"truncated", "occluded", "usable", "checked", "reviewed", "labelok", "id", "number", "count"}
)
_YES = frozenset(
    {
        "1",
        "1.0",
        "true",
        "yes",
        "y",
        "t",
        "x",
        "✓",
        "✔",
        "☑",
        "+",
        "ja",
        "oui",
        "si",
        "sí",
        "是",
        "wahr",
        "vrai",
        "vero",
    }
)
_NO = frozenset({"0", "0.0", "false", "no", "n", "f", "", "-", "☐", "nein", "non", "否", "falsch", "faux", "falso"})
_MINUS = frozenset({"-1", "-1.0"})
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val"}
_SPLITS |= {"test": "test", "testing": "test"}


def plain(column: str) -> str:
    """Return a column's name as it is compared."""
    return column.casefold().replace("_", "").replace("-", "").replace(" ", "")


def usual(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that have one of the usual names, in the order of the names."""
    rank = {name: number for number, name in enumerate(names)}
    found = [(rank[short], column) for column in columns if (short := plain(column)) in rank]
    return [column for _, column in sorted(found, key=lambda item: item[0])]


class Columns:
    """What each column is for.

    Args:
        table: The table.
        options: The settings.
        path: Its file, for messages.
        declared: Labels that are declared.
        one_hot: Columns that are labels themselves, if the settings do not name them.
    """

    def __init__(
        self, table: OpenTable, options: "Settings", path: Path, declared: Collection[str], one_hot: Sequence[str] = ()
    ) -> None:
        self._columns, self.path, self._options, self._declared = table.columns, path, options, frozenset(declared)
        self.image = self._find("image", options.image, [*table.images, *usual(table.columns, IMAGE_COLUMNS)])
        self.one_hot = [self._find("one_hot", name, ()) for name in options.one_hot or ()] or list(one_hot)
        labels = usual([column for column in table.columns if column != self.image], LABEL_COLUMNS)
        self.labels = None if self.one_hot else self._find("labels", options.labels, labels)
        if self.labels is not None and options.labels is None and len(labels) > 1:
            raise UserError(
                "several columns may hold the labels",
                where=path,
                found=", ".join(labels),
                hint=f"set ingest.table.labels to one of them, such as {labels[0]}",
            )
        self._split = None if options.split is None else self._find("split", options.split, ())
        self._boxes = _box_columns(table.columns)
        self.minus_is_no = False  # as in CelebA, where no column holds 0

    @property
    def joins(self) -> bool:
        """Whether several rows of an image are joined: on request, or when each row is of a box."""
        return self._options.several_rows == "join" or (self._options.several_rows is None and bool(self._boxes))

    def see(self, rows: Sequence[TableRow]) -> None:
        """Decide from all rows whether -1 stands for 0."""
        self.minus_is_no = minus_is_no({row.cells.get(name, "") for row in rows for name in self.one_hot})

    def use(self, row: TableRow) -> ListingEntry:
        """Return what the row says about its image."""
        if row.fault:
            return ListingEntry(None, None, row.place, "bad_annotation", row.fault, row.cells)
        split = None
        if self._split is not None:
            split = _SPLITS.get(row.cells[self._split].casefold())
            if split is None:
                found = f"{row.place}: {self._split} is {row.cells[self._split][:40]!r}, not train, val or test"
                return ListingEntry(None, None, row.place, "bad_annotation", found, row.cells)
        return self._one_hot_use(row, split) if self.labels is None else self._label_use(row, split)

    def _one_hot_use(self, row: TableRow, split: str | None) -> ListingEntry:
        no = _NO | _MINUS if self.minus_is_no else _NO
        wrong = [name for name in self.one_hot if row.cells[name].casefold() not in _YES | no | NULLS]
        if wrong:
            found = f"{row.place}: {wrong[0]} is {row.cells[wrong[0]][:40]!r}, not 0 or 1"
            return ListingEntry(None, split, row.place, "bad_annotation", found, row.cells)
        empty = [name for name in self.one_hot if row.cells[name].casefold() in NULLS]
        if empty:
            found = f"{row.place}: {', '.join(empty[:4])} {'are' if len(empty) > 1 else 'is'} unknown"
            return ListingEntry(None, split, row.place, "no_annotation", found, row.cells)
        labels = tuple(name for name in self.one_hot if row.cells[name].casefold() in _YES)
        return ListingEntry(labels, split, row.place, fields=row.cells)

    def _label_use(self, row: TableRow, split: str | None) -> ListingEntry:
        assert self.labels is not None
        boxes = self._box(row)
        if self.labels in row.unnamed:
            number = row.unnamed[self.labels]
            if number == -1:  # the library datasets writes -1 for "unknown", which is never a negative
                return ListingEntry(
                    None, split, row.place, "no_annotation", f"{row.place}: {self.labels} is -1", row.cells
                )
            found = f"{row.place}: {self.labels} is {number}, for which the file has no name"
            return ListingEntry(None, split, row.place, "bad_annotation", found, row.cells)
        if self.labels in row.lists:
            labels = tuple(dict.fromkeys(label for label in map(normalize, row.lists[self.labels]) if label))
            if labels or self._options.empty == "negative" or not row.lists[self.labels]:
                return ListingEntry(labels, split, row.place, fields=row.cells, boxes=boxes)
            return ListingEntry(None, split, row.place, "no_annotation", f"{row.place}: no label", row.cells)
        cell = read_cell(row.cells[self.labels], self._options.separator, self._declared)
        if cell.fault:
            found = f"{row.place}: {self.labels} is {cell.fault}"
            return ListingEntry(None, split, row.place, "bad_annotation", found, row.cells)
        if cell.labels is None and self._options.empty != "negative":
            why = f"{row.place}: {cell.note or 'no label'}; ingest.table.empty=negative makes it a negative"
            return ListingEntry(None, split, row.place, "no_annotation", why, row.cells)
        repair = "label_list" if cell.listed else ""
        return ListingEntry(cell.labels or (), split, row.place, fields=row.cells, boxes=boxes, repair=repair)

    def _box(self, row: TableRow) -> Boxes:
        sides = [_number(row.cells[name]) for name in self._boxes]
        if len(sides) != 4 or not any(row.cells[name] for name in self._boxes):
            return Boxes()
        x1, y1, x2, y2 = sides
        size = plain(self._boxes[2]) in ("width", "w", "bboxwidth")
        return Boxes(((x1, y1, x1 + x2, y1 + y2) if size else (x1, y1, x2, y2),), relative=max(sides) <= 1)

    def _find(self, key: str, name: str | None, usual_ones: Sequence[str]) -> str:
        wanted = [normalize(name)] if name is not None else list(usual_ones[:1])
        if not wanted or wanted[0] not in self._columns:
            names = IMAGE_COLUMNS if key == "image" else LABEL_COLUMNS
            raise UserError(
                "the table lacks a column",
                where=f"{self.path}: ingest.table.{key}",
                expected=name or f"one called {', '.join(names[:9])}",
                found=", ".join(self._columns),
                hint=None
                if name
                else f"set ingest.table.{key} to the column's name"
                + (", or ingest.table.one_hot to columns that are labels themselves" if key == "labels" else ""),
            )
        return wanted[0]


def _box_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a box's sides, of its corner and size, or the one of all four; ``()`` if none."""
    by_name = {plain(column): column for column in columns}
    for names in (*_BOX_COLUMNS, *_CORNER_AND_SIZE):
        if all(name in by_name for name in names):
            return tuple(by_name[name] for name in names)
    return tuple(by_name[name] for name in _BOX_CELLS if name in by_name)[:1]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def one_hot_columns(columns: Sequence[str], values: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """Return the columns that are labels themselves, and the others that nothing else explains.

    Args:
        columns: All but the one of images.
        values: Column -> the different texts of its cells.
    """
    rest = [column for column in columns if plain(column) not in _OTHER_COLUMNS]
    flags = [column for column in rest if plain(column) in _FLAGS or column.casefold().startswith("is_")]
    good = [column for column in rest if column not in flags and _is_one_hot(values[column])]
    return good, [column for column in rest if column not in good]


def minus_is_no(values: Collection[str]) -> bool:
    """Check whether -1 stands for 0 in all of these texts."""
    found = {text.casefold() for text in values}
    return bool(found & _MINUS) and not found & {"0", "0.0", "false", "no", "n"}


def _is_one_hot(values: Collection[str]) -> bool:
    found = {text.casefold() for text in values}
    some = found & {"1", "1.0", "true", "0", "0.0", "false"} or (found & _YES and found & (_NO | _MINUS))
    return found <= _YES | _NO | _MINUS | NULLS and bool(some)
