"""A run's folder: its id, its lock, its settings, and what it starts from."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from flows.environment import runs_root
from flows.settings import Settings, as_values, check_clusters
from models.errors import UserError
from tasks.context import RunContext, fingerprint
from tasks.data.clients import HEATMAP, load_clients, require_match
from tasks.data.dataset import load_dataset
from tasks.initial import label_table
from tasks.store import Store


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
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("no CUDA device here", where="federation.device", found=device, hint="set it to cpu or auto")
    return device


def prepare_run(settings: Settings, data: DataPaths, run_id: str | None = None) -> Run:
    """Checks settings against the data and makes the run's folder. The same settings and data give the same id.

    Args:
        settings: Effective settings.
        data: Where the data lie.
        run_id: A name of one's own instead of the derived one.

    Raises:
        UserError: If the data are missing or damaged, belong to each other not, or do not fit the settings.
    """
    dataset, clients = load_dataset(data.dataset), load_clients(data.clients)
    require_match(clients, dataset)
    sizes = {client: len(clients.indices[client]) for client in clients.ids}
    try:
        taking_part = min(len(sizes), settings.federation.clients_per_round or len(sizes))
        check_clusters(settings, taking_part, f"of {len(sizes)} clients take part in a round")
    except ValueError as error:
        raise UserError(str(error), where=data.clients) from error
    decides = what_decides(settings)
    device = device_of(settings)
    print_ = fingerprint(
        settings=decides, seed=settings.seed, data=[dataset.digest, clients.digest], device=device.split(":")[0]
    )
    name = run_id or f"{settings.method.name}-{settings.model.name}-{print_[:10]}"
    root = runs_root() / name
    root.mkdir(parents=True, exist_ok=True)
    context = RunContext(
        store=str(root),
        dataset=str(data.dataset.resolve()),
        clients=str(data.clients.resolve()),
        seed=settings.seed,
        classes=tuple(dataset.classes),
        label_table=label_table(str(root), settings.model, dataset.classes),
        model=settings.model,
        train=settings.train,
        objective=settings.objective_name,
        objective_settings=getattr(settings.objective, settings.objective_name),
        bn_policy=settings.federation.bn_policy,
        device=device,
        precision=settings.federation.precision,
        client_timeout_s=settings.federation.client_timeout_s,
        fingerprint=print_,
    )
    about = {
        "run_id": name,
        "fingerprint": print_,
        "seed": settings.seed,
        "classes": dataset.classes,
        "data_digest": clients.digest,
        "method": settings.method.name,
        "model": settings.model.name,
    }
    _remember(root, settings, about)
    shutil.copyfile(data.clients / HEATMAP, root / HEATMAP)
    return Run(name, root, context, sizes, clients.digest)


def _remember(root: Path, settings: Settings, about: dict[str, Any]) -> None:
    """Writes ``settings.json`` and ``run.json``; a folder of another run is refused, never overwritten."""
    store = Store(root)
    if store.exists("run.json") and store.read_json("run.json")["fingerprint"] != about["fingerprint"]:
        raise UserError(
            "this run was started with other settings, data or code",
            where=root,
            hint="choose another --run-id, or leave it away to get one that fits",
        )
    store.write_json("settings.json", as_values(settings))
    store.write_json("run.json", about)


@contextlib.contextmanager
def locked(run: Run) -> Iterator[None]:
    """One process at a time works on a run.

    Raises:
        UserError: If another one does.
    """
    lock = FileLock(str(run.root / ".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError("another process is working on this run", where=run.root, hint="wait for it") from error
    try:
        yield
    finally:
        lock.release()


def find_run(root: Path, run_id: str | None) -> Path:
    """The folder of a run, or of the run that was worked on last.

    Raises:
        UserError: If there is no such run.
    """
    runs = sorted(root.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    names = [path.parent.name for path in runs]
    if not names:
        raise UserError("there is no run yet", where=root, hint="fedscene run --preset tiny")
    if run_id is not None and run_id not in names:
        raise UserError("there is no such run", where=root, expected=", ".join(reversed(names[-10:])), found=run_id)
    return root / (run_id or names[-1])


def read_run(root: Path) -> Settings:
    """The settings that a run's folder was last worked on with."""
    from flows.settings import validate

    return validate(Store(root).read_json("settings.json"), str(root))
