"""The files of a source by kind. Names are paths relative to its root with POSIX separators."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.data.formats.shared.system_files import find_litter, thumbnail_original
from tasks.data.formats.shared.walk import is_special, walk_files
from tasks.data.images.image import ImageFile
from tasks.data.images.image_kinds import HEAD, READ, SUFFIXES, UNREAD, content_kind
from tasks.data.source.rules import NO_NAME, compile_rule
from tasks.data.source.sample import RawSample
from tasks.data.text.patterns import matcher

if TYPE_CHECKING:
    from tasks.data.source.settings import SourceSettings

#: Folder names for the kind of content, not for a site or class; compared in lower case.
UNCLEAR_FOLDER = "it is unclear whether "
ROLE_FOLDERS = frozenset(
    {"annotations", "annotation", "xml", "xmls", "labels", "label", "jpegimages", "images", "image", "imgs", "img"}
)
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})
# Not opened to see whether they are images; there may be very many of them.
_NEVER_IMAGES = frozenset(
    {
        ".txt",
        ".xml",
        ".json",
        ".jsonl",
        ".csv",
        ".tsv",
        ".yaml",
        ".yml",
        ".md",
        ".html",
        ".htm",
        ".py",
        ".ipynb",
        ".log",
    }
    | {".npy", ".npz", ".h5", ".hdf5", ".parquet", ".pt", ".pth", ".onnx", ".pkl", ".mat", ".zip", ".gz", ".tar", ".7z"}
    | {".mp4", ".mov", ".avi", ".mkv", ".wav", ".mp3", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".db", ".cache"}
)
_BACKUP = re.compile(r"(.+\.[A-Za-z0-9]{2,5})[._~ -][^/]*", re.DOTALL)  # of a file with a suffix
NO_SITE = NO_NAME
ONE_SITE = "all"

_SPLIT_FOLDERS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val"}
_SPLIT_FOLDERS |= {"test": "test", "testing": "test"}
# train2017, train_images, test-set: a split and a word that names no class.
_SPLIT_AND_MORE = re.compile(
    r"([a-z]+?)[ _-]?(?:\d{1,4}|images?|imgs?|data|dataset|set|photos?|pic(?:ture|tures|s)|jpe?gs?|pngs?)"
)


@dataclass(frozen=True)
class Entry:
    """A file of the tree: where it is, its relative name, and its site (``NO_SITE`` outside every site)."""

    path: Path
    name: str
    site: str

    @property
    def stem(self) -> str:
        """The file name without its last suffix, in Unicode's composed form."""
        return unicodedata.normalize("NFC", PurePosixPath(self.name).stem)

    @property
    def suffix(self) -> str:
        """The file name's last suffix in lower case, with its dot."""
        return os.path.splitext(self.name)[1].lower()  # noqa: PTH122


@dataclass
class Tree:
    """The files of a tree by kind, each list in name order.

    Attributes:
        images: Files whose suffix or content is that of an image, including formats that are not read.
        annotations: Files of the suffixes asked for.
        others: All other files; those that the reader does not use become ``ignored``.
        hidden: System files and names that begin with a dot.
        litter: Files left by NAS boxes, desktops and tools.
        excluded: Files left out by ``ingest.include`` and ``ingest.exclude``, with the annotations of such images.
        redundant: Copies of images: in a format that is not read, backups, targets of links.
    """

    images: list[Entry] = field(default_factory=list)
    annotations: list[Entry] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)
    hidden: list[Entry] = field(default_factory=list)
    litter: list[Entry] = field(default_factory=list)
    excluded: list[Entry] = field(default_factory=list)
    redundant: list[Entry] = field(default_factory=list)


#: What was scanned inside ``shared_scans``.
_SHARED: ContextVar[dict[tuple[str, ...], Tree] | None] = ContextVar("shared scans", default=None)


@contextmanager
def shared_scans() -> Iterator[None]:
    """Give every ``scan`` of a tree inside the result of the first: an ingest scans its source four times."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def scan(root: Path, source: "SourceSettings", annotations: tuple[str, ...] = ()) -> Tree:
    """Sort every file below ``root`` by kind.

    Args:
        root: The tree's root.
        source: Names the files' sites (without a rule all are of one) and what is left out.
        annotations: Suffixes of annotation files, in lower case, as ``.xml``.

    Raises:
        UserError: The folder level that names sites holds role folders such as ``Annotations``.
    """
    shared = _SHARED.get()
    if shared is None:
        return _scan(root, source, annotations)
    key = (str(root), repr((source.site, source.include, source.exclude)), *annotations)
    if key not in shared:
        shared[key] = _scan(root, source, annotations)
    return Tree(**{kind.name: list(getattr(shared[key], kind.name)) for kind in fields(Tree)})


def _scan(root: Path, source: "SourceSettings", annotations: tuple[str, ...]) -> Tree:
    tree, site, site_of = Tree(), source.site, compile_rule(source.site, "ingest.site", ONE_SITE)
    included, unwanted = matcher(source.include or ()), matcher(source.exclude)
    for path, name in sorted(walk_files(root), key=lambda item: item[1]):
        parts = tuple(name.split("/"))  # faster than path objects: a hundred thousand of them take seconds
        suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122
        if any(part.startswith(".") for part in parts) or parts[-1].lower() in _SYSTEM_FILES:
            tree.hidden.append(Entry(path, name, NO_SITE))
        elif find_litter(parts):
            tree.litter.append(Entry(path, name, NO_SITE))
        elif source.exclude and unwanted(name):
            tree.excluded.append(Entry(path, name, NO_SITE))
        elif is_special(path):
            tree.others.append(Entry(path, name, NO_SITE))
        else:
            kind = tree.annotations if suffix in annotations else tree.others
            if suffix in SUFFIXES or (suffix not in annotations and suffix not in _NEVER_IMAGES and _shows_image(path)):
                kind = tree.images if not source.include or included(name) else tree.excluded
            # Only the reader of the table knows its columns.
            kind.append(Entry(path, name, NO_SITE if site.rule == "column" else site_of(name, {})))
    _separate_redundant(tree)
    if site.rule == "folder":
        _refuse_role_folders(root, tree)
    return tree


def _shows_image(path: Path) -> bool:
    """Check by its content whether a file with any other suffix is an image."""
    try:
        with path.open("rb") as file:
            return bool(content_kind(file.read(HEAD)))
    except OSError:
        return False


def _separate_redundant(tree: Tree) -> None:
    """Separate thumbnails and copies of images, and the annotations of excluded images."""
    names = {entry.name for entry in tree.images}
    litter = {name for name in names if thumbnail_original(name) in names}
    tree.litter = sorted(tree.litter + [e for e in tree.images if e.name in litter], key=lambda entry: entry.name)
    tree.images = [entry for entry in tree.images if entry.name not in litter]
    redundant = _redundant_copies(tree.images)
    tree.redundant = [entry for entry in tree.images if entry.name in redundant]
    tree.images = [entry for entry in tree.images if entry.name not in redundant]
    if tree.excluded:
        near = {key for entry in tree.excluded for key in _keys(entry)}
        near -= {key for entry in tree.images for key in _keys(entry)}
        names = {key[-1] for key in near} - {key[-1] for entry in tree.images for key in _keys(entry)}
        theirs = {e.name for e in tree.annotations if e.stem in names or not near.isdisjoint(_keys(e)[:1])}
        tree.excluded += [entry for entry in tree.annotations if entry.name in theirs]
        tree.annotations = [entry for entry in tree.annotations if entry.name not in theirs]


def _redundant_copies(images: list[Entry]) -> set[str]:
    """Return the names of images that duplicate one with a usual suffix.

    They are in a format that is not read, a backup (``a.jpg_original``), or the target of a link (``blobs/1f0c``).
    """
    usual = {entry.name for entry in images if entry.suffix in READ}
    stems = {os.path.splitext(name)[0] for name in usual}  # noqa: PTH122
    found = {e.name for e in images if e.suffix in UNREAD and os.path.splitext(e.name)[0] in stems}  # noqa: PTH122
    others = [entry for entry in images if entry.suffix not in SUFFIXES]
    linked = {os.path.realpath(e.path) for e in images if e.name in usual and e.path.is_symlink()} if others else set()
    for entry in others:
        backup = _BACKUP.match(entry.name)
        if (backup and backup[1] in usual) or os.path.realpath(entry.path) in linked:
            found.add(entry.name)
    return found


def _keys(entry: Entry) -> list[tuple[str, ...]]:
    """Return stem and name of a file, each with the folders that are not role folders."""
    *folders, name = PurePosixPath(unicodedata.normalize("NFC", entry.name)).parts
    telling = [folder for folder in folders if folder.lower() not in ROLE_FOLDERS]
    return [(*telling, entry.stem), (*telling, name)]


def make_file_row(entry: Entry, status: str, reason: str, detail: str = "") -> RawSample:
    """Return the row of a file that is no usable image; its hash is taken if it can be read."""
    try:
        if not entry.path.is_file():  # opening a pipe would block
            raise OSError("not a regular file, or a dangling link")
        with entry.path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        sha256, detail = "", "; ".join(filter(None, (detail, error.strerror or str(error))))
    return RawSample(entry.name, entry.site, None, status, reason, sha256=sha256, detail=detail)


def unclassified_rows(tree: Tree, used: Collection[str] = ()) -> Iterator[RawSample]:
    """Yield rows for all files that are no data, except those whose names are in ``used``."""
    for entry in tree.hidden:
        yield make_file_row(entry, "ignored", "hidden")
    for reason, entries in (("litter", tree.litter), ("excluded", tree.excluded), ("copy", tree.redundant)):
        for entry in entries:
            if entry.name in used and reason == "copy":
                continue
            # Not hashed: there may be terabytes of them.
            yield RawSample(entry.name, entry.site, None, "ignored", reason)
    for entry in tree.others:
        if entry.name not in used:
            yield make_file_row(entry, "ignored", "other")


def make_image_row(entry: Entry, reason: str, detail: str = "") -> RawSample:
    """Return the row of an image that is not used for ``reason``; it is decoded for its size and faults."""
    return RawSample(entry.name, entry.site, None, "quarantined", reason, ImageFile(entry.path), detail=detail)


def split_from_folders(name: str) -> str | None:
    """Return the split that the innermost such folder names (``train``, ``valid``, ``test2017`` ...)."""
    return _split_of(name.rpartition("/")[0])


@lru_cache(maxsize=4096)
def _split_of(folders: str) -> str | None:
    for part in reversed(folders.split("/")):
        more = _SPLIT_AND_MORE.fullmatch(part.lower())
        word = more.group(1) if more else part.lower()
        if word in _SPLIT_FOLDERS:
            return _SPLIT_FOLDERS[word]
    return None


def split_from_name(name: str) -> str | None:
    """Return the split in a file name (``train-00000-of-00002.parquet``), else the one its folders name."""
    stem = name.rsplit("/", 1)[-1].lower()
    for token in stem.replace(".", "_").replace("-", "_").split("_"):
        split = split_from_folders(f"{token}/file")
        if split is not None:
            return split
    return split_from_folders(name)


def _refuse_role_folders(root: Path, tree: Tree) -> None:
    found = {entry.site for entry in tree.images + tree.annotations if entry.site.lower() in ROLE_FOLDERS}
    if found:
        raise UserError(
            "this folder level does not name sites",
            where=root,
            expected="one folder per site, each with its images and annotations",
            found=", ".join(sorted(found)),
            hint="set ingest.site.rule=none or another ingest.site.level, or move the files into a folder per site",
        )
