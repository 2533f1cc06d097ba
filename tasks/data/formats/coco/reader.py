"""COCO JSON: images, annotations and categories in one file, or in one for each split.

Only the category of an annotation counts, for crowds too; boxes are read to count invalid ones. An image listed without
annotations is a negative (ingest.coco.unannotated), one that no JSON lists is unlabelled. If annotations belong to no
listed image, an image without annotations may be the one they mean, and is not taken for a negative.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.data.formats.coco.json_file import Listing, is_coco_json, load_listing, missing_keys
from tasks.data.formats.coco.records import Record, Rules
from tasks.data.formats.shared.foreign_formats import foreign_file
from tasks.data.formats.shared.path_resolver import (
    ListedPath,
    ListingEntry,
    PathResolver,
    make_listed_row,
    make_unlisted_row,
)
from tasks.data.formats.shared.tree import NO_SITE, ONE_SITE, Entry, Tree, make_file_row, scan, unclassified_rows
from tasks.data.source.rules import NameFunction, compile_rule
from tasks.data.source.sample import RawSample
from tasks.data.text.annotation_encoding import shared_encodings
from tasks.data.text.equivalent_names import path_parts

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "a JSON with images, annotations and categories, in a folder with the images or in annotations/ beside them"
KIND = "either"
_JSON_FOLDERS = frozenset({"annotations", "annotation"})
_MAX_INSPECTED = 3  # files that are read only to report them
_OBJECTS = "instances_"  # COCO's own name for the JSON of objects; keypoints and the like list the same images again

Use = tuple[Listing, Record, str]  # and how its name was matched, if no file has exactly this name


class Settings(Section):
    """Which JSON files are read."""

    annotations: list[str] | None = Field(
        None,
        description="JSON files relative to ingest.path; null: all COCO JSON files found, or only those named "
        "instances_*. If ingest.path is a JSON file, only that one and the images it lists are read.",
    )
    dangling: Literal["distrust", "pass_over"] = Field(
        "distrust",
        description="Annotations whose image_id is not listed: distrust counts them as unusable and takes no image of "
        "that JSON for a negative; pass_over skips them as remnants of removed images.",
    )
    ignored: Literal["ask", "count", "leave_out"] = Field(
        "ask",
        description="Annotations marked ignore: whether their label counts; ask: an image whose labels depend on it is "
        "unusable. Crowds (iscrowd) count, deleted annotations do not.",
    )
    empty: Literal["unlabelled", "negative"] = Field(
        "unlabelled", description="How the images of a JSON without a single annotation count: unlabelled or negative."
    )
    unannotated: Literal["negative", "unlabelled"] = Field(
        "negative", description="How an image without annotations counts if others of the JSON have some."
    )

    @property
    def rules(self) -> Rules:
        """How to treat ignored, dangling and missing annotations."""
        return Rules(
            self.ignored, self.dangling == "distrust", self.empty == "negative", self.unannotated == "unlabelled"
        )


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> list[str]:
    """Return the category names in the order of their ids in the first JSON, unused ones included.

    Raises:
        UserError: A JSON cannot be read, or several have other categories.
    """
    listings = _listings(root, options, scan(tree_root(root), source, (".json",)), source.encoding)
    known = {name for listing in listings for name in listing.classes}
    first, *others = listings
    expected = _labels(first, known)
    for other in others:
        differ = sorted(set(expected) ^ set(_labels(other, known)))
        if differ:
            raise UserError(
                "the COCO JSON files have different categories",
                where=other.entry.path,
                expected=f"{', '.join(expected)} (as in {first.entry.name})",
                found=f"{', '.join(_labels(other, known))}; only one of them has {', '.join(differ)}",
                hint="name the files to read in ingest.coco.annotations, or the labels in ingest.classes",
            )
    return expected


def _labels(listing: Listing, known: set[str]) -> list[str]:
    """Return the listing's labels; a root category is a label if another file uses it as one."""
    return [*listing.classes, *([listing.root] if listing.root in known - set(listing.classes) else [])]


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise a JSON with images and categories."""
    folder = root if root.is_dir() else root.parent
    found = [name for name in names if name.lower().endswith(".json") and is_coco_json(folder / name)]
    return f"{', '.join(found[:3])} with images and categories" if found else ""


def near_misses(root: Path, names: Sequence[str]) -> list[str]:
    """Report JSON files that have some of COCO's lists, and what they lack."""
    folder, lines = root if root.is_dir() else root.parent, []
    for name in [name for name in names if name.lower().endswith(".json")][:_MAX_INSPECTED]:
        missing = missing_keys(folder / name)
        if missing:
            lines.append(f"{name} is nearly a COCO JSON, but has no {' and no '.join(missing)}")
    return lines


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once: the JSON files, then the images in name order, listed but missing ones included.

    Raises:
        UserError: A JSON cannot be read or there is none, or the site rule does not fit.
    """
    tree = scan(tree_root(root), source, (".json",))
    listings = _listings(root, options, tree, source.encoding)
    uses, missing = _matched(listings, tree)
    whole = root.is_dir()
    if whole:
        read_too = {listing.entry.name for listing in listings}
        yield from unclassified_rows(tree, uses)
        yield from (
            make_file_row(entry, "ignored", "other") for entry in tree.annotations if entry.name not in read_too
        )
    for listing in listings:
        yield _json_row(listing)
        for place, detail in listing.dangling.items() if options.dangling == "distrust" else ():
            yield RawSample(place, NO_SITE, None, "quarantined", "dangling", detail=detail)
        for place, detail in listing.nameless.items():
            yield RawSample(place, NO_SITE, None, "quarantined", "no_image", detail=detail)
    site_of = compile_rule(source.site, "ingest.site", ONE_SITE) if source.site.rule == "column" else None
    others = tree.others + tree.redundant  # their content decides whether they are images
    listed_others = [entry for entry in others if entry.name in uses]
    for entry in sorted(tree.images + listed_others, key=lambda entry: entry.name):
        if entry.name in uses:
            yield _listed(entry, uses[entry.name], site_of)
        elif whole:
            yield make_unlisted_row(entry, "a JSON", source.unlisted)
    for listed, detail in sorted(missing.items()):
        yield RawSample(listed, NO_SITE, None, "quarantined", "no_image", detail=detail)


def tree_root(root: Path) -> Path:
    """Return the folder to which listed paths are relative."""
    if root.is_dir():
        return root
    return root.parent.parent if root.parent.name.lower() in _JSON_FOLDERS else root.parent


def _listings(root: Path, options: Settings, tree: Tree, encoding: str | None) -> list[Listing]:
    """Read the JSON files that count.

    Raises:
        UserError: There is none, or one that is named is missing.
    """
    folder, by_name = tree_root(root), {entry.name: entry for entry in tree.annotations}
    if root.is_file():
        name = root.relative_to(folder).as_posix()
        entries = [by_name.get(name, Entry(root, name, NO_SITE))]
    elif options.annotations is not None:
        named = [PurePosixPath(name).as_posix() for name in options.annotations]
        lost = [name for name in named if name not in by_name]
        if lost or not named:
            found = ", ".join(list(by_name)[:6]) or "no .json file"
            raise UserError("no such JSON file", where="ingest.coco.annotations", expected=", ".join(lost), found=found)
        entries = [by_name[name] for name in dict.fromkeys(named)]
    else:
        entries = [entry for entry in tree.annotations if is_coco_json(entry.path)]
        entries = [entry for entry in entries if PurePosixPath(entry.name).name.startswith(_OBJECTS)] or entries
    if not entries:
        found = ", ".join(list(by_name)[:6]) or "no .json file"
        kind = next(filter(None, (foreign_file(entry.path) for entry in list(by_name.values())[:6])), None)
        found += f": {kind.tool}" if kind else ""
        raise UserError(
            "no COCO JSON found", where=folder, expected=LAYOUT, found=found, hint=kind.advice if kind else None
        )
    encodings = shared_encodings((entry.path for entry in entries), encoding)
    return [load_listing(entry, options.rules, encodings) for entry in entries]


def _json_row(listing: Listing) -> RawSample:
    status, reason = ("fixed", "encoding") if listing.encoding else ("ok", "metadata")
    counts = f"{len(listing.records)} images, {len(listing.classes)} categories"
    return make_file_row(
        listing.entry, status, reason, "; ".join(filter(None, (listing.encoding, counts, *listing.warnings)))
    )


def _matched(listings: Sequence[Listing], tree: Tree) -> tuple[dict[str, list[Use]], dict[str, str]]:
    """Match records with images; return also the listed names whose image is missing, with the reason.

    A path is searched below the JSON's folder, the root and ``images``, then anywhere.
    """
    second = (entry.name for entry in tree.excluded + tree.redundant)
    images = (entry.name for entry in tree.images)
    resolver = PathResolver((entry.name for entry in tree.images + tree.others), second, images)
    records = [(listing, record) for listing in listings for record in listing.records]
    wanted = []
    for listing, record in records:
        folders = (str(PurePosixPath(listing.entry.name).parent), "", "images")
        wanted.append(ListedPath(record.listed, listing.entry.name, folders, listing.split))
    uses: dict[str, list[Use]] = defaultdict(list)
    missing: dict[str, str] = {}
    for (listing, record), found in zip(records, resolver.resolve(wanted), strict=True):
        if found.file is None:
            missing["/".join(path_parts(record.listed))] = found.detail
        else:
            uses[found.file].append((listing, record, found.detail))
    return uses, missing


def _listed(entry: Entry, uses: Sequence[Use], site_of: NameFunction | None) -> RawSample:
    """Return the row of a listed image; a JSON without annotations does not contradict one that has some."""
    uses = [use for use in uses if use[1].reason != "no_annotation"] or uses
    entries = [
        ListingEntry(
            one.labels, listing.split, listing.entry.name, one.reason, one.detail, one.fields, one.boxes, inexact
        )
        for listing, one, inexact in uses
    ]
    row = make_listed_row(entry, entries, site_of)
    if row.reason == "ambiguous_pair" and len({listing.entry.name for listing, _, _ in uses}) > 1:
        return replace(row, detail=f"{row.detail}; name the files that count in ingest.coco.annotations")
    return row
