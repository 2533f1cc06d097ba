"""The files of a source and their contents, to tell later whether a data set still matches its source.

``source.parquet`` of a data set holds name and content of every file of the source; the content is the sha256 or a
placeholder. It does not depend on the machine. Files with unchanged size and times are not read again; their hashes are
cached next to the runs, and losing the cache costs only time.
"""

import contextlib
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from models.errors import UserError
from models.settings.section import Section
from tasks.core.json_files import read_json
from tasks.core.tables import read_table
from tasks.data.dataset import SUMMARY
from tasks.data.formats import Format, load_format, tree_root
from tasks.data.formats.shared.tree import scan
from tasks.data.ingest.file_hashes import HashCache, Status, file_status, hash_files
from tasks.data.ingest.settings import IngestSettings
from tasks.data.source.rules import NameRule

FILE = "source.parquet"
_HINT = "ingest the data again (fedscene data ingest)"
_FOLDER, _MISSING, _BYTES = "folder", "missing", " bytes"  # in place of a sha256


@dataclass(frozen=True)
class SourceListing:
    """A source as it is now; no file was opened.

    Attributes:
        where: Its absolute path, "" for a synthetic data set.
        whole: Whether every file counts; else only those that the single file lists.
        files: Name relative to the source -> status, without the files that readers leave out.
        extras: Declared folders, and files outside the source that settings name.
    """

    where: str
    whole: bool = True
    files: Mapping[str, Status] = field(default_factory=dict)
    extras: Mapping[str, Status | str] = field(default_factory=dict)

    @property
    def synthetic(self) -> bool:
        """Whether a program renders the images, so that settings, seed and code determine them."""
        return not self.where

    @property
    def unavailable(self) -> bool:
        """Whether there is nothing: a disk that is not mounted, an empty mount point."""
        return bool(self.where) and not self.files


def list_source(settings: IngestSettings) -> SourceListing:
    """List the source that the settings name; an unreadable or missing one has no files."""
    reader = load_format(settings.source)
    if reader.KIND == "none":
        return SourceListing("")
    root = source_path(settings)
    if root is None:
        return SourceListing("ingest.path, which is not set")
    try:
        if not root.exists():
            return SourceListing(str(root))
        folder = root if root.is_dir() else tree_root(reader, root)
        tree = scan(folder, settings.model_copy(update={"site": NameRule.model_validate({})}))
    except OSError:
        return SourceListing(str(root))
    entries = {entry.name: entry.path for entry in (*tree.images, *tree.annotations, *tree.others, *tree.redundant)}
    if root.is_file():
        entries[root.relative_to(folder).as_posix()] = root
    files = {name: found for name, path in entries.items() if (found := file_status(path)) is not None}
    return SourceListing(str(root), root.is_dir(), files, _extras(settings, reader, root))


def source_path(settings: IngestSettings) -> Path | None:
    """Return the source's absolute path; ``None`` if none is set."""
    if settings.path is None:
        return None
    return Path(os.path.abspath(settings.path.expanduser()))  # noqa: PTH100  keeps links


def _extras(settings: IngestSettings, reader: Format, root: Path) -> dict[str, Status | str]:
    """Return files outside the tree that settings name, and the class folders, some of which may be empty."""
    options = settings.format_options
    found: dict[str, Status | str] = {}
    sections = {"ingest.site": settings.site, "ingest.group": settings.group, f"ingest.{settings.source}": options}
    for key, section in sections.items():
        for name, path in _paths(section):
            found[f"{key}.{name}"] = file_status(path.expanduser()) or _MISSING
    if settings.source == "folder":
        with contextlib.suppress(UserError):  # reported by the ingest
            found |= {f"{name}/": _FOLDER for name in reader.default_classes(root, options, settings) or ()}
    return found


def _paths(section: Section) -> Iterable[tuple[str, Path]]:
    return ((name, value) for name, value in section if isinstance(value, Path))


def contents_after_read(listing: SourceListing, rows: Iterable[Mapping[str, Any]], hashes: HashCache) -> dict[str, str]:
    """Return name -> content, right after a reader has gone through the source.

    Args:
        listing: The source before it was read.
        rows: The rows read (``Collector.rows``), whose hashes are used.
        hashes: Receives the hashes.
    """
    if listing.synthetic:
        return {}
    by_path = {row["path"]: row for row in rows}
    stems = None if listing.whole else _stems([*by_path, PurePosixPath(listing.where).name])
    found: dict[str, str] = {}
    unknown: dict[str, Status] = {name: status for name, status in listing.extras.items() if isinstance(status, Status)}
    for name, status in listing.files.items():
        row = by_path.get(name)
        if stems is not None and _stem(name) not in stems:
            continue
        if row is not None and row["sha256"]:
            found[name] = row["sha256"]
            hashes.put(status, row["sha256"])
        elif row is not None and row["status"] == "ignored":
            found[name] = f"{status.size}{_BYTES}"  # not read, as it may be huge
        else:
            unknown[name] = status
    found |= hash_files(unknown, hashes) | {
        name: text for name, text in listing.extras.items() if isinstance(text, str)
    }
    if not listing.whole:
        found |= {path: _MISSING for path, row in by_path.items() if row["reason"] == "no_image" and path not in found}
    return found


def current_contents(listing: SourceListing, recorded: Mapping[str, str], hashes: HashCache) -> dict[str, str]:
    """Return name -> content as it is now, in the terms of an earlier record; only unknown files are read."""
    stems = None if listing.whole else _stems(recorded)
    chosen = {name: status for name, status in listing.files.items() if stems is None or _stem(name) in stems}
    unread = {name for name in chosen if recorded.get(name, "").endswith(_BYTES)}
    chosen |= {name: status for name, status in listing.extras.items() if isinstance(status, Status)}
    found = hash_files({name: status for name, status in chosen.items() if name not in unread}, hashes)
    found |= {name: f"{chosen[name].size}{_BYTES}" for name in unread}
    found |= {name: text for name, text in listing.extras.items() if isinstance(text, str)}
    return found | {name: text for name, text in recorded.items() if text == _MISSING and name not in found}


def _stem(name: str) -> str:
    return PurePosixPath(name).stem.casefold()


def _stems(names: Iterable[str]) -> set[str]:
    return {_stem(name) for name in names}


def contents_digest(contents: Mapping[str, str]) -> str:
    """Return the sha256 over names and contents."""
    return hashlib.sha256(json.dumps(sorted(contents.items())).encode()).hexdigest()


def write_contents(contents: Mapping[str, str], path: Path) -> None:
    """Write ``source.parquet``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = sorted(contents)
    pq.write_table(pa.table({"name": names, "content": [contents[name] for name in names]}), path)


def describe_change(dataset: Path, listing: SourceListing, hashes: HashCache) -> str:
    """Say in one line what has changed since a data set was made; "" if nothing has.

    Args:
        dataset: The data set's folder.
        listing: Its source now, neither synthetic nor unavailable.
        hashes: The hash cache; new hashes are added and saved.

    Raises:
        UserError: A file of the data set is missing or damaged.
    """
    expected = read_json(dataset / SUMMARY, _HINT).get("source_digest")
    if expected is None:
        return "its source was not recorded when it was made"
    table = read_table(dataset / FILE, ("name", "content"), _HINT)
    recorded = dict(zip(table["name"], table["content"], strict=True))
    if contents_digest(recorded) != expected:
        raise UserError(
            "a file of the data is damaged", where=dataset / FILE, expected=f"the digest {expected}", hint=_HINT
        )
    now = current_contents(listing, recorded, hashes)
    hashes.save()
    return difference(recorded, now)


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Describe the difference: ``10 moved (a/1.jpg -> b/1.jpg, ...), 5 removed (a/7.jpg, ...)``, or ""."""
    before = {name for name, text in old.items() if text != _MISSING}
    now = {name for name, text in new.items() if text != _MISSING}
    removed, added = sorted(before - now), sorted(now - before)
    by_content = defaultdict(list)
    for name in reversed(added):
        by_content[new[name]].append(name)
    moved = [(name, by_content[old[name]].pop()) for name in removed if len(old[name]) == 64 and by_content[old[name]]]
    gone, come = {name for name, _ in moved}, {name for _, name in moved}
    parts = {
        "moved": [f"{source} -> {target}" for source, target in moved],
        "removed": [name for name in removed if name not in gone],
        "new": [name for name in added if name not in come],
        "changed": sorted(name for name in before & now if old[name] != new[name]),
    }
    return ", ".join(f"{len(names)} {what} ({_shown(names)})" for what, names in parts.items() if names)


def _shown(names: list[str]) -> str:
    first = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in names[0][:200])
    return first + (", ..." if len(names) > 1 else "")
