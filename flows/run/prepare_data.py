"""The data stages: ingest and partition, into DVC's ``data/`` or into a folder of the runs.

A folder of the runs is named by the settings that determine the images; when its source changes, the data go to a new
folder beside it (``<name>-2``, ...), so that earlier runs keep theirs. Its partitions are in ``clients`` and
``clients-<digest>``.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flows.engine.environment import runs_root
from flows.run.inputs import DataPaths
from flows.run.minimum_images import check_image_count
from flows.settings.schema import Settings
from models.errors import UserError
from models.files import remove
from tasks.core.locks import locked
from tasks.core.store import Store, digest_of

if TYPE_CHECKING:
    from tasks.data.ingest.settings import IngestSettings
    from tasks.data.ingest.source_state import SourceListing

ProgressCall = Callable[[int, "int | None"], None]
Notify = Callable[[str], None]


def ingest_stage(
    settings: Settings, root: Path, progress: ProgressCall | None = None, workers: int | None = None
) -> dict[str, Any]:
    """Ingest into ``root/dataset`` and write the counts per reason to ``root/ingest.json``, a DVC metric."""
    from tasks.data.ingest.ingest import ingest

    summary = ingest(settings.ingest, root / "dataset", settings.seed, progress, workers, _hash_folder())
    _write_counts(root, summary)
    return summary


def _write_counts(root: Path, summary: dict[str, Any]) -> None:
    Store(root).write_json("ingest.json", {key: summary[key] for key in ("images", "reasons", "splits")})


def partition_stage(settings: Settings, root: Path) -> dict[str, Any]:
    """Partition ``root/dataset`` into ``root/clients`` and write ``root/partition.json``, a DVC metric."""
    from tasks.data.partition.stage import figures, partition

    summary = partition(root / "dataset", settings.partition, root / "clients", settings.seed)
    Store(root).write_json("partition.json", figures(summary))
    return summary


def prepare_data(settings: Settings, progress: ProgressCall | None = None, notify: Notify | None = None) -> DataPaths:
    """Return data for these settings and their source: ``data/`` if it has them, else a folder of the runs.

    One process prepares the data; another one that needs the same data waits for it.

    Args:
        settings: Effective settings.
        progress: Called with (files read, total or ``None``) now and then.
        notify: Called with a line about a source that has changed or is missing; default: a warning in the log.

    Raises:
        UserError: If the source is not usable.
    """
    from tasks.data.formats.shared.walk import RUNS_MARKER
    from tasks.data.ingest.source_state import list_source
    from tasks.data.partition.stage import partition

    notify = notify or logging.getLogger(__name__).warning
    found = _find(settings, list_source(settings.ingest))
    if found.clients is None:
        place = _first_folder(settings)
        place.parent.mkdir(parents=True, exist_ok=True)
        (runs_root() / RUNS_MARKER).touch()  # a source that contains the runs is read without them
        with locked(place, "prepares data"):
            found = _find(settings, list_source(settings.ingest))
            if found.root is None:
                found = _ingest_into_new_folder(settings, found, progress, notify)
            if found.clients is None:
                clients = _clients_folder(settings, found.dataset)
                partition(found.dataset, settings.partition, clients, settings.seed)
                found = _Found(found.root, clients, found.note)
    if found.root is not None and found.root != Path("data"):
        _complete(found.root)
    if found.note:
        notify(found.note)
    assert found.clients is not None
    return DataPaths(found.dataset, found.clients)


def _complete(root: Path) -> None:
    """Finish the work of a process that was killed after the data set was in place."""
    summary = _read(root / "dataset" / "dataset.json")
    if not (root / "ingest.json").exists() and {"images", "reasons", "splits"} <= set(summary):
        _write_counts(root, summary)
    for left in [*root.glob("*.tmp"), root / ".dataset.parts"]:
        remove(left)


def find_data(settings: Settings) -> DataPaths | None:
    """Return data that were made with these settings from their source in its present state, else ``None``."""
    from tasks.data.ingest.source_state import list_source

    found = _find(settings, list_source(settings.ingest))
    return None if found.clients is None else DataPaths(found.dataset, found.clients)


def require_data(settings: Settings, root: Path = Path("data")) -> DataPaths:
    """Return the outputs of DVC's data stages in ``data/``.

    Raises:
        UserError: If it is missing or was made with other settings.
    """
    for folder, section, name in (("dataset", settings.ingest, "ingest"), ("clients", settings.partition, "partition")):
        file = root / folder / f"{folder}.json"
        if not _same(file, section, settings.seed):
            raise UserError(
                f"the data were not made with these settings ({name})" if file.exists() else "there are no data yet",
                where=root / folder,
                hint=f"dvc repro, or fedscene data {name}",
            )
    return DataPaths(root / "dataset", root / "clients")


def source_change(settings: "IngestSettings", root: Path = Path("data")) -> str:
    """Return in one line how the source differs from what ``root/dataset`` was made from.

    It is "" if the source has not changed, or is missing.
    """
    from tasks.data.ingest.file_hashes import HashCache
    from tasks.data.ingest.source_state import describe_change, list_source

    listing = list_source(settings)
    if listing.synthetic or listing.unavailable or not (root / "dataset").is_dir():
        return ""
    return describe_change(root / "dataset", listing, HashCache(_hash_folder(), listing.where))


@dataclass(frozen=True)
class _Found:
    """Existing data: the folder of the data set, that of the partition, and a line about the source."""

    root: Path | None
    clients: Path | None = None
    note: str = ""

    @property
    def dataset(self) -> Path:
        assert self.root is not None
        return self.root / "dataset"


def _find(settings: Settings, listing: "SourceListing") -> _Found:
    """Return the data set made with these settings from this source; the newest one if the source is missing."""
    from tasks.data.ingest.file_hashes import HashCache
    from tasks.data.ingest.source_state import describe_change

    note, hashes = "", HashCache(_hash_folder(), listing.where)
    for root in _existing_folders(settings):
        if listing.unavailable:
            note = f"the source is missing ({listing.where}): the data prepared from it earlier are used, {root}"
        elif not listing.synthetic and (change := describe_change(root / "dataset", listing, hashes)):
            note = note or f"the source has changed since {root} was made: {change}"
            continue
        else:
            note = ""
        return _Found(root, _clients(settings, root), note)
    return _Found(None, None, note)


def _ingest_into_new_folder(settings: Settings, found: _Found, progress: ProgressCall | None, notify: Notify) -> _Found:
    """Ingest into the first folder without a data set."""
    root = next(folder for folder in _folder_names(settings) if not (folder / "dataset" / "dataset.json").exists())
    if found.note:
        notify(f"{found.note}; preparing again, into {root}")
    check_image_count(settings)
    ingest_stage(settings, root, progress)
    return _Found(root, _clients(settings, root))


def _folder_names(settings: Settings) -> Iterator[Path]:
    """Yield the names of the runs' folders for data of these settings, without end."""
    first, number = _first_folder(settings), 1
    while True:
        yield first if number == 1 else first.with_name(f"{first.name}-{number}")
        number += 1


def _existing_folders(settings: Settings) -> list[Path]:
    """Return the folders with a data set of these settings: ``data/``, then the runs', the newest first."""
    in_runs = []
    for folder in _folder_names(settings):
        if not folder.is_dir():
            break
        if (folder / "dataset" / "dataset.json").exists():
            in_runs.append(folder)
    common = Path("data")
    in_data = [common] if _same(common / "dataset" / "dataset.json", settings.ingest, settings.seed) else []
    return in_data + in_runs[::-1]


def _clients(settings: Settings, root: Path) -> Path | None:
    """Return the folder of the partition of these settings of the data set in ``root``, if it exists."""
    digest = _read(root / "dataset" / "dataset.json").get("digest")
    for folder in (root / "clients", _clients_folder(settings, root / "dataset")):
        file = folder / "clients.json"
        if _same(file, settings.partition, settings.seed) and _read(file).get("dataset_digest") == digest:
            return folder
    return None


def _clients_folder(settings: Settings, dataset: Path) -> Path:
    """Return the folder for the runs' partition of a data set: beside it, unless the data set is DVC's.

    The first one is called ``clients``, as in ``data/``.
    """
    from flows.run.data_code import partition_code

    digest = _read(dataset / "dataset.json").get("digest")
    values = settings.partition.model_dump(mode="json")
    name = f"clients-{digest_of(values, settings.seed, digest, partition_code())[:12]}"
    if dataset.parent == Path("data"):
        return _first_folder(settings) / name
    return dataset.parent / (name if (dataset.parent / "clients").exists() else "clients")


def _first_folder(settings: Settings) -> Path:
    """Return the data's first folder under the runs, named by what determines its images except the source."""
    from flows.run.data_code import ingest_code
    from tasks.data.ingest.source_state import source_path

    values = settings.ingest.model_dump(mode="json") | {"path": str(source_path(settings.ingest))}
    return runs_root() / "data" / digest_of(values, settings.seed, ingest_code(settings.ingest))[:12]


def _hash_folder() -> Path:
    """Return the folder of the caches of source files' hashes."""
    return runs_root() / "data" / ".sources"


def _same(file: Path, section: Any, seed: int) -> bool:
    """Return whether a stage's summary names these settings and this seed.

    A setting that an earlier release did not have counts as its default, which is what that release did.
    """
    if not file.exists():
        return False
    summary = _read(file)
    try:
        found = type(section).model_validate(summary.get("settings"))
    except ValidationError:
        return False
    return found == section and summary.get("seed") == seed


def _read(file: Path) -> dict[str, Any]:
    """Return a stage's summary; DVC may have linked the file."""
    return Store(file.parent, linked_files=True).read_json(file.name)
