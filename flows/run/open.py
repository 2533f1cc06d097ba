"""A run's folder: its id, its lock, its settings, and what it starts from."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.engine.environment import runs_root
from flows.run.code_version import code_version
from flows.run.find import checked_id
from flows.run.fingerprint import fingerprint
from flows.run.lock import LOCK, locked_run, remove_unfinished
from flows.settings.consistency import check_method
from flows.settings.schema import Settings, as_values
from models.errors import LabelError, UserError
from models.files import copy_file
from models.timm_settings import FAMILIES, check_image_size
from tasks.core.context import RunContext
from tasks.core.records import VERSION
from tasks.core.store import Store, state_digest
from tasks.data.clients import Clients, load_clients, require_match
from tasks.data.dataset import Dataset, load_dataset
from tasks.data.ingest.audit_report import AUDIT, AUDIT_FILES
from tasks.data.ingest.unusable_files import unusable
from tasks.data.statistics.plots import FILES
from tasks.report.report import DATA_FIGURES
from tasks.server.initial_model import frozen_embeddings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DataPaths:
    """Where a run's data lie.

    Attributes:
        dataset: Folder of the canonical data set.
        clients: Folder of the partition.
    """

    dataset: Path = Path("data/dataset")
    clients: Path = Path("data/clients")


@dataclass(frozen=True)
class Run:
    """A run that is open for work.

    Attributes:
        id: Its id, the name of its folder.
        root: Its folder.
        context: What tasks need to know.
        clients: Client id -> number of training images.
        data_digest: Digest of the partition, which names the data set's.
    """

    id: str
    root: Path
    context: RunContext
    clients: dict[str, int]
    data_digest: str


def what_decides(settings: Settings) -> dict[str, Any]:
    """The settings that decide a result. Rounds, engine, workers, chunks, tracking and report do not."""
    values = as_values(settings)
    federation = values["federation"]
    return {
        "model": values["model"],
        "objective": [settings.objective_name, values["objective"].get(settings.objective_name)],
        "method": [settings.method.name, values["method"][settings.method.name]],
        "train": values["train"],
        "evaluation": values["evaluation"],
        "federation": {key: federation[key] for key in ("clients_per_round", "quorum", "bn_policy", "precision")},
    }


def device_of(settings: Settings) -> str:
    """``auto`` resolved; a CUDA device that is not there is an error.

    Raises:
        UserError: If CUDA is asked for and there is none.
    """
    import torch

    device = settings.federation.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu" and settings.federation.precision == "bf16":
            raise UserError("bf16 is for CUDA, and there is none here", where="federation.precision", expected="fp32")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("no CUDA device here", where="federation.device", found=device, hint="set it to cpu or auto")
    return device


@dataclass(frozen=True)
class _Start:
    """What a run starts from, and the digest of all that decides its result."""

    dataset: Dataset
    clients: Clients
    device: str
    tables: "dict[str, Tensor]"
    fingerprint: str

    def derived_id(self, settings: Settings) -> str:
        """The id of a run that is given no name of its own."""
        return f"{settings.method.name}-{settings.model.name}-{self.fingerprint[:10]}"


def require_weights(settings: Settings, image_size: int | None = None) -> None:
    """Refuses weights to start from that do not fit the network, and images that it does not cover.

    Args:
        settings: The run's.
        image_size: Of the data, pixels; default: what they will be ingested with.

    Raises:
        UserError: If something does not fit.
    """
    from models.build import check_weights

    size = settings.ingest.image_size if image_size is None else image_size
    if settings.model.name in FAMILIES:
        check_image_size(settings.model.name, settings.model.timm, size)
    check_weights(settings.model, size)


def _start(settings: Settings, data: DataPaths) -> _Start:
    """Reads and checks the data, and names the run. Writes nothing."""
    dataset, clients = load_dataset(data.dataset), load_clients(data.clients)
    require_match(clients, dataset)
    clients.require_labels()
    _check_method(settings, len(clients.ids), data)
    require_weights(settings, int(dataset.images.shape[-1]))
    device, tables = device_of(settings), _tables(settings, dataset)
    digest_ = fingerprint(
        settings.method.name,
        settings.objective_name,
        settings.model.name,
        settings=what_decides(settings),
        seed=settings.seed,
        data=[dataset.digest, clients.digest],
        device=device.split(":")[0],
        # Files are named by path in the settings; what is in them decides.
        labels=state_digest(tables) if tables else None,
        weights=[_file_digest(path) for path in settings.model.weight_files],
    )
    return _Start(dataset, clients, device, tables, digest_)


def _tables(settings: Settings, dataset: Dataset) -> "dict[str, Tensor]":
    """What the network is built around; a label that is refused is named with the file that it is from."""
    try:
        return frozen_embeddings(settings.model, dataset.classes)
    except LabelError as error:
        from tasks.data.ingest.label_origin import label_locations

        raise error.at(label_locations(dataset.root, error.labels)) from error


def run_of(settings: Settings, data: DataPaths) -> str:
    """The id that ``open_run`` gives a run of these settings and data. Writes nothing, so the run need not exist.

    Raises:
        UserError: If the data are missing or damaged, or do not fit the settings.
    """
    return _start(settings, data).derived_id(settings)


@contextlib.contextmanager
def open_run(settings: Settings, data: DataPaths, run_id: str | None = None) -> Iterator[Run]:
    """A run for these settings and data, locked for the duration. The same ones give the same id.

    Nothing is written before the run is known to be ours and nobody else works on it; for another process that does,
    this one waits, and then goes on from what is finished.

    Args:
        settings: Effective settings.
        data: Where the data lie.
        run_id: A name of one's own instead of the derived one.

    Raises:
        UserError: If the data are missing or damaged, do not belong together, or do not fit the settings; if this
            process has the run open already, or it was started with other settings.
    """
    start = _start(settings, data)
    dataset, clients, tables = start.dataset, start.clients, start.tables
    sizes = {client: len(clients.indices[client]) for client in clients.ids}
    name = checked_id(run_id) if run_id is not None else start.derived_id(settings)
    root, store = runs_root() / name, Store(runs_root() / name)
    with locked_run(root, wait=True):
        _refuse_other(store, start.fingerprint)
        (root / LOCK).touch()
        remove_unfinished(root)
        ref = store.put_state("labels.safetensors", tables) if tables else None
        context = RunContext(
            store=str(root),
            dataset=str(data.dataset.resolve()),
            clients=str(data.clients.resolve()),
            seed=settings.seed,
            classes=tuple(dataset.classes),
            image_size=int(dataset.images.shape[-1]),
            tables=ref,
            model=settings.model,
            train=settings.train,
            objective=settings.objective_name,
            objective_settings=getattr(settings.objective, settings.objective_name),
            bn_policy=settings.federation.bn_policy,
            evaluation=settings.evaluation,
            device=start.device,
            precision=settings.federation.precision,
            client_timeout_s=settings.federation.client_timeout_s,
            fingerprint=start.fingerprint,
            data_digest=clients.digest,
        )
        run = Run(name, root, context, sizes, clients.digest)
        _remember(store, settings, run)
        _keep(data.clients, FILES, root / DATA_FIGURES)
        _keep(data.dataset / AUDIT, AUDIT_FILES, root / DATA_FIGURES)
        yield run


def _keep(source: Path, names: Sequence[str], folder: Path) -> None:
    """Copies what the data stages say of the data to the run, whose report then needs no data."""
    folder.mkdir(exist_ok=True)
    for name in names:
        if (source / name).is_file():
            copy_file(source / name, folder / name)


def _check_method(settings: Settings, clients: int, data: DataPaths) -> None:
    try:
        check_method(settings, clients)
    except ValueError as error:
        raise UserError(str(error), where=data.clients) from error


def _file_digest(path: Path | None) -> str | None:
    """sha256 of a file, ``None`` without one; a missing file is reported where it is read."""
    if path is None or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_other(store: Store, digest_: str) -> None:
    """A folder of another run is refused, never overwritten."""
    if store.exists("run.json") and store.read_json("run.json").get("fingerprint") != digest_:
        raise UserError(
            "this run was started with other settings, data or code",
            where=store.root,
            hint="choose another --run-id, or leave it away to get one that fits",
        )


def _remember(store: Store, settings: Settings, run: Run) -> None:
    """Writes ``settings.json`` and ``run.json``, which keeps the code that the run was begun with."""
    begun = store.read_json("run.json").get("code") if store.exists("run.json") else code_version()
    store.write_json("settings.json", as_values(settings))
    store.write_json(
        "run.json",
        {
            "version": VERSION,
            "run_id": run.id,
            "fingerprint": run.context.fingerprint,
            "seed": settings.seed,
            "classes": list(run.context.classes),
            "data_digest": run.data_digest,
            "dataset": run.context.dataset,
            "clients": run.context.clients,
            "method": settings.method.name,
            "model": settings.model.name,
            "input": unusable(Path(run.context.dataset)),
        }
        | ({} if begun is None else {"code": begun}),
    )
