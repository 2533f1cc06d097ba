"""FLAIR: images of Flickr users under 17 coarse or some 1,600 fine labels, each user a site.

It reads ``labels_and_metadata.json`` with image files (``small_images/ID.jpg``), and the HDF5 forms (``hdf5.py``).
FLAIR's licence (CC BY-NC 4.0) forbids shipping it; its own split separates users. In FLAIR itself every image has a
label; an empty list in a derived file means none of the labels.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.data.formats.flair.hdf5 import SUFFIXES, holds_images, read_records
from tasks.data.formats.flair.records import PARTITIONS, Record, load_json
from tasks.data.formats.shared.path_resolver import make_unlisted_row
from tasks.data.formats.shared.tree import NO_SITE, Entry, Tree, make_file_row, make_image_row, scan, unclassified_rows
from tasks.data.images.image import ImageFile, ImageSource
from tasks.data.source.rules import NameFunction, compile_rule
from tasks.data.source.sample import RawSample
from tasks.data.text.equivalent_names import match_equivalent_names

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

LAYOUT = "labels_and_metadata.json with small_images/ID.jpg, or HDF5 files with a group per user"
KIND = "either"
_JSON = "labels_and_metadata.json"
_SMALL = "small_images"


class Settings(Section):
    """Which of FLAIR's two label sets counts."""

    labels: Literal["coarse", "fine"] = Field("coarse", description="coarse: 17 labels; fine: some 1,600.")

    @property
    def key(self) -> str:
        """The field that holds the labels."""
        return "labels" if self.labels == "coarse" else "fine_grained_labels"


def default_classes(root: Path, options: Settings, source: "SourceSettings") -> None:
    """Return ``None``: FLAIR does not list its labels; those that are found count."""
    return


def recognise(root: Path, names: Sequence[str]) -> str:
    """Recognise the metadata file by its name, HDF5 files by their groups."""
    folder = root if root.is_dir() else root.parent
    found = [name for name in names if PurePosixPath(name).name == _JSON]
    found = found or [name for name in names if name.lower().endswith(SUFFIXES) and holds_images(folder / name)]
    return ", ".join(found[:3])


def read(root: Path, options: Settings, source: "SourceSettings", seed: int) -> Iterator[RawSample]:
    """Yield every file once, then the images of HDF5 files, or those that the JSON lists and that are missing.

    In a folder with the JSON, HDF5 files are skipped: they hold the same images.

    Raises:
        UserError: There is neither a metadata file nor an HDF5 file with images, or one cannot be read.
    """
    folder = root if root.is_dir() else root.parent
    tree = scan(folder, source) if root.is_dir() or root.name == _JSON else Tree()
    jsons, hdf5 = _sources(root, tree)
    site_of = None if source.site.rule == "none" else compile_rule(source.site, "ingest.site")
    yield from unclassified_rows(tree, {entry.name for entry in [*jsons, *hdf5]})
    yield from (make_file_row(entry, "ok", "metadata") for entry in hdf5)
    for entry in jsons:
        yield from _listed(entry, tree, options.key, site_of, source.encoding, source.unlisted)
    if not jsons:
        yield from (make_image_row(entry, "no_annotation", "beside HDF5 files") for entry in tree.images)
    for entry in hdf5:
        for name, record, image in read_records(entry.path, options.key):
            yield _sample(f"{entry.name}/{name}", [record], image, site_of)


def _sources(root: Path, tree: Tree) -> tuple[list[Entry], list[Entry]]:
    """Return the JSON and no HDF5 file, or the reverse; a file given as ``ingest.path`` is read as it is."""
    jsons = [entry for entry in tree.others if PurePosixPath(entry.name).name == _JSON]
    if root.is_file():
        named = [entry for entry in jsons if entry.path == root]
        return named, [] if named else [Entry(root, root.name, NO_SITE)]
    hdf5 = [entry for entry in tree.others if entry.path.suffix.lower() in SUFFIXES and not jsons]
    hdf5 = [entry for entry in hdf5 if len(hdf5) == 1 or holds_images(entry.path)]
    if len(jsons) > 1 or not (jsons or hdf5):
        found = ", ".join(entry.name for entry in jsons) or "none"
        raise UserError("no FLAIR data, or several", where=root, expected=LAYOUT, found=found)
    return jsons, hdf5


def _listed(
    listing: Entry, tree: Tree, key: str, site_of: NameFunction | None, encoding: str | None, unlisted: str
) -> Iterator[RawSample]:
    """Yield the rows of the JSON, of every image, and of listed images that are missing."""
    records, repaired = load_json(listing, key, encoding)
    yield make_file_row(listing, *(("fixed", "encoding") if repaired else ("ok", "metadata")), repaired)
    by_id: dict[str, list[Record]] = defaultdict(list)
    for number, record in enumerate(records):
        if record is None or not record.image:
            where = f"{listing.name}/{number}"
            yield RawSample(where, NO_SITE, None, "quarantined", "no_image", detail="an entry without image_id")
        else:
            by_id[record.image].append(record)
    files: dict[str, list[Entry]] = defaultdict(list)
    for entry in tree.images:
        files[entry.stem].append(entry)
    near = match_equivalent_names(files, by_id)
    for entry in tree.images:
        same, image = files[entry.stem], near.get(entry.stem, entry.stem)
        # The folder may hold both the reduced and the raw images.
        small = [file for file in same if _SMALL in PurePosixPath(file.name).parts] or same
        if image not in by_id:
            yield make_unlisted_row(entry, listing.name, unlisted)
        elif len(small) > 1:
            yield make_image_row(entry, "ambiguous_pair", ", ".join(file.name for file in small))
        elif entry is small[0]:
            row = _sample(entry.name, by_id[image], ImageFile(entry.path), site_of)
            inexact = image != entry.stem and row.status != "quarantined"
            yield replace(row, status="fixed", reason="near_name", detail=f"listed as {image}") if inexact else row
        else:  # not hashed, as the raw images take more than a terabyte
            yield RawSample(entry.name, entry.site, None, "ignored", "other", detail=f"{small[0].name} is read")
    for image in sorted(by_id.keys() - files.keys() - set(near.values()) - {entry.stem for entry in tree.excluded}):
        user = by_id[image][0].user
        yield RawSample(image, user, None, "quarantined", "no_image", detail=f"listed in {listing.name}")


def _sample(path: str, records: Sequence[Record], image: ImageSource | None, site_of: NameFunction | None) -> RawSample:
    """Return the row of an image that is listed at least once."""
    record = records[0]
    fields = {"image_id": record.image, "user_id": record.user, "partition": record.partition}
    site = site_of(path, fields) if site_of else record.user
    contents = {(each.user, each.partition, each.labels and frozenset(each.labels), each.fault) for each in records}
    reason, detail = "", record.fault
    if image is None:
        reason = "no_image"
    elif len(contents) > 1:
        reason, detail = "ambiguous_pair", f"listed {len(records)} times with other labels, users or partitions"
    elif record.fault:
        reason = "bad_annotation"
    elif site == NO_SITE:
        reason, detail = "no_site", "it has no user_id" if site_of is None else "ingest.site names no site for it"
    elif record.labels is None:
        reason, detail = "no_annotation", "the entry has no labels"
    repeated = not reason and len(records) > 1
    return RawSample(
        path,
        site,
        None if reason else record.labels,
        "quarantined" if reason else "fixed" if repeated else "ok",
        reason or ("repeated" if repeated else ""),
        image,
        split=PARTITIONS.get(record.partition),
        detail=f"listed {len(records)} times" if repeated else detail,
        fields=fields,
    )
