"""The data stages: ingest and partition, into DVC's ``data/`` or into a folder of the runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.enough import check_enough
from flows.environment import runs_root
from flows.runs import DataPaths
from flows.settings import Settings
from models.errors import UserError
from tasks.store import Store, digest_of

ProgressCall = Callable[[int, "int | None"], None]


def ingest_stage(
    settings: Settings, root: Path, progress: ProgressCall | None = None, workers: int | None = None
) -> dict[str, Any]:
    """Ingests into ``root/dataset`` and writes the counts per reason to ``root/ingest.json``, a DVC metric."""
    from tasks.data.ingest import ingest

    summary = ingest(settings.ingest, root / "dataset", settings.seed, progress, workers)
    counts = {key: summary[key] for key in ("images", "reasons", "splits")}
    Store(root).write_json("ingest.json", counts)
    return summary


def partition_stage(settings: Settings, root: Path) -> dict[str, Any]:
    """Partitions ``root/dataset`` into ``root/clients`` and writes ``root/partition.json``, a DVC metric."""
    from tasks.data.partition.stage import figures, partition

    summary = partition(root / "dataset", settings.partition, root / "clients", settings.seed)
    Store(root).write_json("partition.json", figures(summary))
    return summary


def prepare_data(settings: Settings, progress: ProgressCall | None = None) -> DataPaths:
    """Data for these settings: ``data/`` if it was made with them, else a folder of the runs, made once.

    Raises:
        UserError: If the source is not usable.
    """
    if (found := find_data(settings)) is not None:
        return found
    root = _own_folder(settings)
    if not _same(root / "dataset" / "dataset.json", settings.ingest, settings.seed):
        check_enough(settings)
        ingest_stage(settings, root, progress)
    partition_stage(settings, root)
    return DataPaths(root / "dataset", root / "clients")


def find_data(settings: Settings) -> DataPaths | None:
    """Data that were made with these settings: ``data/``, or the folder of the runs; ``None`` if there are none."""
    for root in (Path("data"), _own_folder(settings)):
        if _made_with(root, settings):
            return DataPaths(root / "dataset", root / "clients")
    return None


def require_data(settings: Settings, root: Path = Path("data")) -> DataPaths:
    """``data/`` as DVC's stages made it.

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


def _own_folder(settings: Settings) -> Path:
    """The data's folder under the runs, named by all that decides them, the code included."""
    from tasks.context import DATA_CODE, code_digest

    parts = settings.ingest.model_dump(mode="json"), settings.partition.model_dump(mode="json")
    return runs_root() / "data" / digest_of(*parts, settings.seed, code_digest(DATA_CODE))[:12]


def _made_with(root: Path, settings: Settings) -> bool:
    dataset = _same(root / "dataset" / "dataset.json", settings.ingest, settings.seed)
    return dataset and _same(root / "clients" / "clients.json", settings.partition, settings.seed)


def _same(file: Path, section: Any, seed: int) -> bool:
    """Whether a stage's summary names these settings and this seed."""
    if not file.exists():
        return False
    summary = Store(file.parent, linked_files=True).read_json(file.name)
    return summary.get("settings") == section.model_dump(mode="json") and summary.get("seed") == seed
