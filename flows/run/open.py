"""Open a run's folder: its id, its lock, its settings and its inputs."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flows.engine.environment import runs_root
from flows.run.code_version import code_version
from flows.run.find import checked_id, read_run
from flows.run.inputs import DataPaths, participants, read_inputs
from flows.run.lock import LOCK, locked_run, remove_unfinished
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from models.files import copy_file
from tasks.core.context import RunContext
from tasks.core.records import VERSION, ModelRef
from tasks.core.store import Store, state_bytes, state_digest
from tasks.data.ingest.audit_report import AUDIT, AUDIT_FILES
from tasks.data.ingest.unusable_files import unusable
from tasks.data.statistics.plots import FILES
from tasks.report.report import DATA_FIGURES

LABELS = "labels.safetensors"  # in a run's folder: the frozen label embeddings


@dataclass(frozen=True)
class Run:
    """A run that is open for work.

    Attributes:
        id: Its id, the name of its folder.
        root: Its folder.
        context: What tasks need to know.
        clients: Client id -> number of labelled training images.
        data_digest: Digest of the partition, which names the data set's.
        unlabelled: Client id -> number of training images without labels.
        server_images: Number of labelled images at the server.
    """

    id: str
    root: Path
    context: RunContext
    clients: dict[str, int]
    data_digest: str
    unlabelled: dict[str, int] = field(default_factory=dict)
    server_images: int = 0


def derive_run_id(settings: Settings, data: DataPaths) -> str:
    """Return the id that ``open_run`` gives a run of these settings and data. Writes nothing.

    Raises:
        UserError: If the data are missing or damaged, or do not fit the settings.
    """
    return read_inputs(settings, data).derived_id(settings)


def read_context(root: Path) -> RunContext:
    """Return the context of a run from its folder and the data that it was made from. Locks and writes nothing.

    Raises:
        UserError: If the folder or the data cannot be read, or the data, settings or code are not the run's.
    """
    store, settings = Store(root), read_run(root)
    facts = store.read_json("run.json")
    data = DataPaths(Path(facts["dataset"]), Path(facts["clients"]))
    inputs = read_inputs(settings, data)
    _check_same_run(store, inputs.fingerprint)
    tables = inputs.tables
    ref = ModelRef(LABELS, state_digest(tables), state_bytes(tables)) if tables else None
    return inputs.context(root, settings, data, ref)


def stored_context(root: Path) -> RunContext:
    """Return the context of a run from its folder alone, for building its networks on the CPU.

    Unlike ``read_context`` it needs no data, and accepts a run that earlier code made.

    Raises:
        UserError: If a file of the run cannot be read.
    """
    store, settings = Store(root), read_run(root)
    facts = store.read_json("run.json")
    kind = facts.get("kind", "multi_label")
    objective, tables = settings.objective_for(kind), None
    if store.exists(LABELS):
        state = store.get_state(ModelRef(LABELS, "", 0), verify=False)
        tables = ModelRef(LABELS, state_digest(state), state_bytes(state))
    return RunContext(
        store=str(root),
        dataset=facts["dataset"],
        clients=facts["clients"],
        seed=settings.seed,
        classes=tuple(facts["classes"]),
        image_size=settings.ingest.image_size,
        tables=tables,
        model=settings.model,
        train=settings.train,
        objective=objective,
        objective_settings=getattr(settings.objective, objective),
        bn_policy=settings.federation.bn_policy,
        evaluation=settings.evaluation,
        fingerprint=facts["fingerprint"],
        data_digest=facts["data_digest"],
        kind=kind,
    )


@contextlib.contextmanager
def open_run(settings: Settings, data: DataPaths, run_id: str | None = None) -> Iterator[Run]:
    """Open a run for these settings and data and lock it for the duration. Equal settings and data give an equal id.

    Nothing is written before the folder is known to belong to this run and no other process works on it. If one does,
    this process waits and then continues after the finished rounds.

    Args:
        settings: Effective settings.
        data: Folders of the data.
        run_id: A name for the run instead of the derived one.

    Raises:
        UserError: If the data are missing or damaged, do not belong together, or do not fit the settings; if this
            process has the run open already, or it was started with other settings.
    """
    inputs = read_inputs(settings, data)
    clients = inputs.clients
    ids = participants(settings, clients)
    sizes = {client: len(clients.indices[client]) for client in ids}
    name = checked_id(run_id) if run_id is not None else inputs.derived_id(settings)
    root, store = runs_root() / name, Store(runs_root() / name)
    with locked_run(root, wait=True):
        _check_same_run(store, inputs.fingerprint)
        (root / LOCK).touch()
        remove_unfinished(root)
        ref = store.put_state(LABELS, inputs.tables) if inputs.tables else None
        unlabelled = {client: len(clients.rows(client, "train", "unlabelled")) for client in ids}
        context = inputs.context(root, settings, data, ref)
        run = Run(name, root, context, sizes, clients.digest, unlabelled, len(clients.server))
        write_run_metadata(store, settings, run)
        _copy_data_figures(data.clients, FILES, root / DATA_FIGURES)
        _copy_data_figures(data.dataset / AUDIT, AUDIT_FILES, root / DATA_FIGURES)
        yield run


def _copy_data_figures(source: Path, names: Sequence[str], folder: Path) -> None:
    """Copy what the data stages report to the run, so that its report needs no data."""
    folder.mkdir(exist_ok=True)
    for name in names:
        if (source / name).is_file():
            copy_file(source / name, folder / name)


def _check_same_run(store: Store, digest: str) -> None:
    """Refuse the folder of another run; it is never overwritten."""
    if store.exists("run.json") and store.read_json("run.json").get("fingerprint") != digest:
        raise UserError(
            "this run was started with other settings, data or code",
            where=store.root,
            hint="choose another --run-id, or omit it to get one that fits",
        )


def write_run_metadata(store: Store, settings: Settings, run: Run) -> None:
    """Write ``settings.json`` and ``run.json``; the latter keeps the version of the code that started the run.

    Args:
        store: The run's store.
        settings: Its effective settings.
        run: The run.
    """
    started_by = store.read_json("run.json").get("code") if store.exists("run.json") else code_version()
    store.write_json("settings.json", as_values(settings))
    store.write_json(
        "run.json",
        {
            "version": VERSION,
            "run_id": run.id,
            "fingerprint": run.context.fingerprint,
            "seed": settings.seed,
            "classes": list(run.context.classes),
            "kind": run.context.kind,
            "data_digest": run.data_digest,
            "dataset": run.context.dataset,
            "clients": run.context.clients,
            "method": settings.method.name,
            "model": settings.model.name,
            "input": unusable(Path(run.context.dataset)),
        }
        | ({} if started_by is None else {"code": started_by}),
    )
