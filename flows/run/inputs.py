"""What a run starts from: its data, device and label embeddings, and the digest of all that decides its result."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.methods import load_method
from flows.run.fingerprint import Parts, fingerprint
from flows.settings.consistency import check_aggregation, check_method, check_objective
from flows.settings.schema import Settings, as_values
from models.errors import LabelError, UserError
from tasks.client.objectives import load_objective
from tasks.core.context import RunContext
from tasks.core.federation_settings import RESULT_SETTINGS
from tasks.core.problem_kind import Kind
from tasks.core.records import ModelRef
from tasks.core.store import state_digest
from tasks.core.update_transforms import load_transform
from tasks.data.clients import Clients, load_clients, partitioned, require_match
from tasks.data.dataset import Dataset, load_dataset
from tasks.data.ingest.dataset_kind import dataset_kind
from tasks.evaluation.metric_sets import metric_set
from tasks.evaluation.new_clients import held_out
from tasks.server.initial_model import frozen_embeddings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DataPaths:
    """Folders of a run's data.

    Attributes:
        dataset: Folder of the canonical data set.
        clients: Folder of the partition.
    """

    dataset: Path = Path("data/dataset")
    clients: Path = Path("data/clients")


def result_settings(settings: Settings, kind: Kind) -> dict[str, Any]:
    """Return the settings that a result depends on: all but rounds, stop, engine, workers, tracking and report."""
    objective = settings.objective_for(kind)
    values = as_values(settings)
    federation = values["federation"]
    return {
        "model": values["model"],
        "objective": [objective, values["objective"].get(objective)],
        "method": [settings.method.name, values["method"][settings.method.name]],
        "aggregation": _aggregation(values["aggregation"]),
        "train": values["train"],
        "evaluation": values["evaluation"],
        "federation": {key: federation[key] for key in RESULT_SETTINGS},
    }


def _aggregation(values: Mapping[str, Any]) -> list[Any]:
    """Return the chosen aggregator with its settings, the clients' weights, and the transforms of updates."""
    name = values["name"]
    return [
        name,
        values[name],
        values["weighting"],
        *(values[f"{where}_transforms"] for where in ("client", "server", "downlink")),
    ]


def resolve_device(settings: Settings) -> str:
    """Return ``federation.device`` with ``auto`` resolved.

    Raises:
        UserError: If CUDA, or bf16 that needs it, is asked for and there is none.
    """
    import torch

    device = settings.federation.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu" and settings.federation.precision == "bf16":
            raise UserError("bf16 needs CUDA, which is not available", where="federation.precision", expected="fp32")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("no CUDA device found", where="federation.device", found=device, hint="set it to cpu or auto")
    return device


@dataclass(frozen=True)
class RunInputs:
    """A run's data, device, label embeddings and kind of problem, and the digest of all that decides its result."""

    dataset: Dataset
    clients: Clients
    device: str
    tables: "dict[str, Tensor]"
    fingerprint: str
    kind: Kind

    def derived_id(self, settings: Settings) -> str:
        """Return the id of a run that is given no name of its own."""
        return f"{settings.method.name}-{settings.model.name}-{self.fingerprint[:10]}"

    def context(self, root: Path, settings: Settings, data: DataPaths, tables: ModelRef | None) -> RunContext:
        """Return the run's context; ``tables`` refers to the label embeddings in its folder."""
        objective = settings.objective_for(self.kind)
        return RunContext(
            store=str(root),
            dataset=str(data.dataset.resolve()),
            clients=str(data.clients.resolve()),
            seed=settings.seed,
            classes=tuple(self.dataset.classes),
            image_size=int(self.dataset.images.shape[-1]),
            tables=tables,
            model=settings.model,
            train=settings.train,
            objective=objective,
            objective_settings=getattr(settings.objective, objective),
            bn_policy=settings.federation.bn_policy,
            evaluation=settings.evaluation,
            device=self.device,
            precision=settings.federation.precision,
            client_timeout_s=settings.federation.client_timeout_s,
            fingerprint=self.fingerprint,
            data_digest=self.clients.digest,
            aggregator=settings.aggregation.spec,
            weighting=settings.aggregation.weighting,
            client_transforms=settings.aggregation.client_transforms,
            server_transforms=settings.aggregation.server_transforms,
            downlink_transforms=settings.aggregation.downlink_transforms,
            kind=self.kind,
        )


def participants(settings: Settings, clients: Clients) -> list[str]:
    """Return the clients that train: those with images for the method, without ``evaluation.new_clients``."""
    held = held_out(clients.ids, settings.evaluation.new_clients, settings.seed)
    return clients.with_images(load_method(settings.method.name).DATA, held)


def require_weights(settings: Settings, image_size: int | None = None) -> None:
    """Refuse initial weights that do not fit the network, and images that it cannot take.

    Args:
        settings: The run's settings.
        image_size: Side of the images, pixels; default: ``ingest.image_size``.

    Raises:
        UserError: If something does not fit.
    """
    from models.build import check_weights

    size = settings.ingest.image_size if image_size is None else image_size
    settings.model.check_images(size)
    check_weights(settings.model, size)


def read_inputs(settings: Settings, data: DataPaths) -> RunInputs:
    """Read and check what a run starts from. Writes nothing.

    Raises:
        UserError: If the data are missing or damaged, or do not fit the settings.
    """
    from models.build import weight_files

    dataset, clients = load_dataset(data.dataset), load_clients(data.clients)
    require_match(clients, dataset)
    dataset = partitioned(dataset, clients)
    if load_method(settings.method.name).DATA == "labelled":
        clients.require_labels()
    kind = dataset_kind(data.dataset)
    require_clients(settings.federation.required, clients.ids, data.clients)
    _refuse_held_out(settings, clients, data.clients)
    require_validation(settings, dataset, kind)
    _check_clients(settings, clients, data)
    _check_objective(settings, kind, dataset)
    require_weights(settings, int(dataset.images.shape[-1]))
    device, tables = resolve_device(settings), _tables(settings, dataset)
    objective, aggregation = settings.objective_for(kind), settings.aggregation
    digest = fingerprint(
        Parts(settings.method.name, objective, settings.model.name, aggregation.name, tuple(aggregation.transforms)),
        settings=result_settings(settings, kind),
        kind=kind,
        seed=settings.seed,
        data=[dataset.digest, clients.digest],
        device=device.split(":")[0],
        # Settings name files by path; a result depends on their content.
        labels=state_digest(tables) if tables else None,
        weights=[_file_digest(path) for path in weight_files(settings.model)],
    )
    return RunInputs(dataset, clients, device, tables, digest, kind)


def require_clients(required: Sequence[str], clients: Sequence[str], where: Path) -> None:
    """Refuse required clients that the partition does not have.

    Raises:
        UserError: If one is not there.
    """
    if missing := [client for client in required if client not in clients]:
        shown = ", ".join(clients[:20]) + (f" and {len(clients) - 20} more" if len(clients) > 20 else "")
        raise UserError(
            "no such client in the partition",
            where=f"federation.required, {where}",
            expected=shown,
            found=", ".join(missing),
        )


def _refuse_held_out(settings: Settings, clients: Clients, where: Path) -> None:
    """Refuse to require clients that ``evaluation.new_clients`` holds out."""
    if held := sorted(set(settings.federation.required) - set(participants(settings, clients))):
        raise UserError(
            "required clients never take part, as evaluation.new_clients holds them out",
            where=f"federation.required, {where}",
            expected=", ".join(participants(settings, clients)[:20]),
            found=", ".join(held),
            hint="another seed, or another share of new clients, holds out others",
        )


def require_validation(settings: Settings, dataset: Dataset, kind: Kind) -> None:
    """Refuse settings that need validation images if there are none, and to stop by a metric that they do not have.

    Raises:
        UserError: If the data set has no validation images, or ``federation.stop.metric`` is none of theirs.
    """
    stop, rows = settings.federation.stop, dataset.indices("val")
    users = {"federation.stop": stop.by_metric, "evaluation.thresholds": settings.evaluation.thresholds == "per_class"}
    if needed := [key for key, used in users.items() if used and len(rows) == 0]:
        raise UserError(
            f"{' and '.join(needed)} needs validation images, and the data set has none",
            where=dataset.root,
            hint="set ingest.split.val (with partition.images=all: partition.local.val) above 0, or "
            "federation.stop.patience and target to null and evaluation.thresholds to fixed",
        )
    if stop.metric is not None:
        count, targets = len(dataset.classes), dataset.targets[rows[:1]]
        found = metric_set(kind).compute(np.full((1, count), 1 / count), targets, settings.evaluation)
        known = sorted(f"val_{name}" for name in (*found, "loss"))
        if stop.metric not in known:
            raise UserError(
                "no such metric of the validation images",
                where="federation.stop.metric",
                expected=", ".join(known),
                found=stop.metric,
            )


def _tables(settings: Settings, dataset: Dataset) -> "dict[str, Tensor]":
    """Return the frozen label embeddings; the error on a refused label names the file that has it."""
    try:
        return frozen_embeddings(settings.model, dataset.classes)
    except LabelError as error:
        from tasks.data.ingest.label_origin import label_locations

        raise error.at(label_locations(dataset.root, error.labels)) from error


def _check_clients(settings: Settings, clients: Clients, data: DataPaths) -> None:
    """Check method, aggregator and update transforms against the clients of the partition."""
    try:
        ids = participants(settings, clients)
        check_method(settings, len(ids))
        check_aggregation(settings, len(ids))
        settings.aggregation.weighting.check(ids)
        settings.federation.sampling.check(ids)
        for spec in (*settings.aggregation.client_transforms, *settings.aggregation.server_transforms):
            load_transform(spec.name).check(spec, ids)
    except ValueError as error:
        raise UserError(str(error), where=data.clients) from error


def _check_objective(settings: Settings, kind: Kind, dataset: Dataset) -> None:
    """Check the objective against the kind and the classes of the data, and the data against their kind."""
    try:
        check_objective(settings, kind)
    except ValueError as error:
        raise UserError(str(error), where=dataset.root) from error
    name = settings.objective_for(kind)
    load_objective(name).check(getattr(settings.objective, name), dataset.classes)
    if kind == "single_label" and (wrong := int((dataset.targets.sum(axis=1) != 1)[dataset.annotated].sum())):
        raise UserError(
            f"{wrong} of {dataset.annotated.sum()} images do not have exactly one label",
            where=dataset.root,
            expected="one label for each image of a single-label data set",
            hint="make the data again (fedscene data ingest), or set ingest.kind=multi_label",
        )


def _file_digest(path: Path | None) -> str | None:
    """Return the sha256 of a file, ``None`` without one; a missing file is reported where it is read."""
    if path is None or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
