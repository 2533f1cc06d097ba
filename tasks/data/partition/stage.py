"""The partition stage: a data set on disk to clients on disk."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from models.files import replacing_folder
from tasks.core.json_files import read_json, write_json
from tasks.core.locks import locked
from tasks.core.records import VERSION
from tasks.data.clients import HINT, SUMMARY, TABLE, clients_digest, write_clients_table
from tasks.data.dataset import SPLITS, Dataset, load_dataset
from tasks.data.partition.divide import Division, divide
from tasks.data.partition.feature_skew import client_features
from tasks.data.partition.participation import absent_sites_line
from tasks.data.partition.settings import PartitionSettings


def partition(dataset_dir: Path, settings: PartitionSettings, out: Path, seed: int) -> dict[str, Any]:
    """Divide a data set among clients and replace ``out`` by the result atomically.

    While another process writes ``out``, wait; if it wrote the same partition, return that.

    Returns:
        The content of ``clients.json``.

    Raises:
        UserError: The data set is missing or damaged, or cannot be divided as ``settings`` ask.
    """
    out = Path(os.path.abspath(out))  # noqa: PTH100  keeps links
    with locked(out, "partitions") as waited:
        dataset = load_dataset(dataset_dir)
        if waited and (out / SUMMARY).is_file():
            existing: dict[str, Any] = read_json(out / SUMMARY, HINT)
            wanted = (dataset.digest, settings.model_dump(mode="json"), seed)
            if (existing.get("dataset_digest"), existing.get("settings"), existing.get("seed")) == wanted:
                return existing
        return _partition(dataset, settings, out, seed)


def _partition(dataset: Dataset, settings: PartitionSettings, out: Path, seed: int) -> dict[str, Any]:
    from tasks.data.statistics.plots import write_partition_figures

    division = divide(dataset, settings, seed)
    summary = summarise(dataset, settings, division, seed)
    with replacing_folder(out, SUMMARY) as folder:
        write_clients_table(dataset, division.rows, division.server, folder / TABLE)
        note = absent_sites_line(summary["sites_without_training_images"], len(set(dataset.sites.tolist())))
        targets, owners, *known = _training(dataset, division)
        write_partition_figures(targets, owners, sorted(division.rows), dataset.classes, folder, "client", note, *known)
        write_json(folder / SUMMARY, summary)
    return summary


def figures(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the main numbers of a partition, for DVC's metrics."""
    sizes = [client["images"] for client in summary["clients"].values()]
    repair = summary["repair"]
    names = ("mean_js_distance", "effective_clients", "mean_cooccurrence_distance")
    return (
        {"clients": len(sizes), "smallest": min(sizes), "largest": max(sizes)}
        | {name: summary[name] for name in names}
        | {
            "unlabelled": sum(client["unlabelled"] for client in summary["clients"].values()),
            "images_reassigned": repair.get("reassigned", repair.get("moved")),  # the former name
            "dropped_clients": len(summary["dropped"]),
            "dropped_images": sum(summary["dropped"].values()),
            "sites_without_training_images": len(summary["sites_without_training_images"]),
        }
    )


def _training(dataset: Dataset, division: Division) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return targets, owners, whether labels are known and whether they are hidden, of all clients' training images."""
    train = {client: rows.chosen("train") for client, rows in division.rows.items()}
    owners = np.repeat(np.array(list(train), dtype=str), [len(rows) for rows in train.values()])
    hidden = [rows.pool[rows.split == "train"] == "unlabelled" for rows in division.rows.values()]
    rows = np.concatenate(list(train.values()))
    return dataset.targets[rows], owners, dataset.annotated[rows], np.concatenate(hidden)


def summarise(dataset: Dataset, settings: PartitionSettings, division: Division, seed: int) -> dict[str, Any]:
    """Return the content of ``clients.json``."""
    from tasks.data.statistics.heterogeneity import statistics

    ids, assignment = sorted(division.rows), division.assignment
    features = client_features(settings.features, ids, seed)
    targets, owners, *known = _training(dataset, division)
    found = statistics(targets, owners, ids, dataset.classes, *known)
    for client, rows in division.rows.items():
        found["clients"][client] |= {
            "splits": {split: len(rows.chosen(split)) for split in SPLITS},
            "labelled": len(rows.chosen("train", "labelled")),
        }
    absent = sorted(set(dataset.sites.tolist()) - {*ids, *assignment.dropped}) if settings.scheme == "natural" else []
    server = division.server
    counts = dataset.targets[server].sum(axis=0, dtype=np.int64).tolist()
    return {
        "digest": clients_digest(
            dataset.digest,
            division.rows,
            server,
            features,
            seed,
            settings.features.test == "clients",
            settings.labelled.stream,
        ),
        "version": VERSION,
        "dataset_digest": dataset.digest,
        "scheme": settings.scheme,
        **found,
        "sites_without_training_images": absent,
        "server": {"images": len(server), "labels": dict(zip(dataset.classes, counts, strict=True))},
        "dropped": assignment.dropped,
        "repair": asdict(assignment.repair),
        "warnings": assignment.warnings,
        "features": features,
        "settings": settings.model_dump(mode="json"),
        "seed": seed,
    }
