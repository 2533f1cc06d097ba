"""FLAIR: images of Flickr users under 17 coarse or some 1,600 fine labels, each user a site.

Read are ``labels_and_metadata.json`` with image files (``small_images/ID.jpg``), and both HDF5 forms
(``flair_hdf5``). FLAIR's licence (CC BY-NC 4.0) forbids shipping it; its own split keeps users apart.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.data.formats.flair_hdf5 import has_users, records, signature
from tasks.data.formats.tree import NO_SITE, ONE_SITE, Entry, file_row, image_row, left_over, scan
from tasks.data.rules import Namer, namer
from tasks.data.sample import RawSample
from tasks.data.source import FilePicture
from tasks.data.text import TextError, decode_text, normal

if TYPE_CHECKING:
    from tasks.data.ingest_settings import IngestSettings

LAYOUT = "labels_and_metadata.json with small_images/ID.jpg, or HDF5 files with a group per user"
KIND = "either"
_JSON = "labels_and_metadata.json"
_HDF5 = (".h5", ".hdf5")
_SPLITS = {"train": "train", "val": "val", "validation": "val", "dev": "val", "test": "test"}


class Settings(Section):
    """Which of FLAIR's two label sets counts."""

    labels: Literal["coarse", "fine"] = Field("coarse", description="coarse: 17 labels; fine: some 1,600.")

    @property
    def key(self) -> str:
        """The field that holds the labels."""
        return "labels" if self.labels == "coarse" else "fine_grained_labels"


def default_classes(root: Path, own: Settings, ingest: "IngestSettings") -> None:
    """FLAIR lists its labels nowhere but in its images; those that are found count."""
    return


def recognise(root: Path, names: Sequence[str]) -> str:
    """The metadata file, or HDF5 files."""
    found = [name for name in names if PurePosixPath(name).name == _JSON or name.lower().endswith(_HDF5)]
    return f"{', '.join(found[:3])}" if found else ""


def read(root: Path, own: Settings, ingest: "IngestSettings", seed: int) -> Iterator[RawSample]:
    """Every file once, then the images of HDF5 files.

    Raises:
        UserError: There is neither a metadata file nor an HDF5 file, or one cannot be read.
    """
    folder = root if root.is_dir() else root.parent
    tree = scan(folder, ingest.site)
    others = [entry for entry in tree.others if root.is_dir() or entry.path.name == root.name]
    jsons = [entry for entry in others if PurePosixPath(entry.name).name == _JSON]
    hdf5 = [entry for entry in others if entry.path.suffix.lower() in _HDF5 and signature(entry.path)]
    if len(jsons) > 1 or not (jsons or hdf5):
        found = ", ".join(entry.name for entry in jsons) or "none"
        raise UserError("no FLAIR data, or several", where=root, expected=LAYOUT, found=found)
    if len(hdf5) > 1:
        hdf5 = [entry for entry in hdf5 if has_users(entry.path)] or hdf5
    used = jsons + hdf5
    site_of = None if ingest.site.rule == "none" else namer(ingest.site, "ingest.site")
    if root.is_dir():
        yield from left_over(tree, {entry.name for entry in used})
    for entry in used:
        yield file_row(entry, "ok", "metadata")
    if jsons:
        yield from _listed(jsons[0], tree.images, own.key, site_of)
    elif root.is_dir():
        yield from (image_row(entry, "no_annotation", "beside HDF5 files") for entry in tree.images)
    for entry in hdf5:
        yield from _stored(entry, own.key, site_of)


def _stored(entry: Entry, key: str, site_of: Namer | None) -> Iterator[RawSample]:
    for record in records(entry.path, entry.name, key):
        partition = record.partition.lower()
        named = [split for word, split in _SPLITS.items() if word in entry.path.stem.lower()]
        split = _SPLITS.get(partition) or next(iter(named), None)
        site = site_of(record.name, {"user_id": record.user}) if site_of else record.user or ONE_SITE
        yield RawSample(record.name, normal(site), record.labels, picture=record.picture, split=split)


def _listed(file: Entry, images: Sequence[Entry], key: str, site_of: Namer | None) -> Iterator[RawSample]:
    by_stem: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in _items(file, key):
        by_stem[normal(str(item["image_id"]))].append(item)
    for entry in images:
        some = by_stem.pop(entry.stem, [])
        if not some:
            yield image_row(entry, "no_annotation", f"not in {file.name}")
            continue
        item = some[0]
        fields = {name: str(value) for name, value in item.items()}
        site = site_of(entry.name, fields) if site_of else normal(str(item["user_id"]))
        same = all(other == item for other in some)
        reason = "no_site" if site == NO_SITE else "" if same else "ambiguous_pair"
        repeated = not reason and len(some) > 1
        yield RawSample(
            entry.name,
            site,
            None if reason else tuple(map(str, item[key])),
            "quarantined" if reason else "fixed" if repeated else "ok",
            reason or ("repeated" if repeated else ""),
            FilePicture(entry.path),
            split=_SPLITS.get(str(item.get("partition")).lower()),
            detail=f"listed {len(some)} times" if len(some) > 1 else "",
            fields=fields,
        )
    for stem, some in sorted(by_stem.items()):
        site = normal(str(some[0]["user_id"]))
        yield RawSample(stem, site, None, "quarantined", "no_image", detail=f"listed in {file.name}")


def _items(file: Entry, key: str) -> list[dict[str, Any]]:
    try:
        items = json.loads(decode_text(file.path.read_bytes())[0])
    except (OSError, TextError, ValueError, RecursionError) as error:
        raise UserError("cannot read the metadata", where=file.path, found=error) from error
    wanted = {"image_id", "user_id", key}
    for number, item in enumerate(items if isinstance(items, list) else [items]):
        if not isinstance(item, dict) or not wanted <= item.keys() or not isinstance(item[key], list):
            expected = f"a list of records with {', '.join(sorted(wanted))} (a list of labels)"
            raise UserError("not FLAIR's metadata", where=f"{file.path}, record {number}", expected=expected)
    return list(items)
