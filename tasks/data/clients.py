"""The clients on disk: who holds which training images.

``clients.parquet`` one row per training image (``index`` into ``images.npy``, ``sample_id``, ``client``);
``clients.json`` counts and distances; ``label_client.png`` their picture.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import UserError
from tasks.data.dataset import Dataset, read_json, read_table

TABLE, SUMMARY, HEATMAP = "clients.parquet", "clients.json", "label_client.png"
HINT = "make the data again (fedscene data partition; a folder under runs/data can simply be removed)"
_KEYS = {"digest": str, "dataset_digest": str, "scheme": str, "clients": dict, "mean_js_distance": int | float}


@dataclass(frozen=True, eq=False)
class Clients:
    """Who holds what.

    Attributes:
        ids: The clients, sorted.
        indices: For each client its rows of the data set's arrays, int64, ascending; train split only.
        digest: sha256 over the data set's digest and who holds what.
        summary: What ``clients.json`` holds.
    """

    ids: list[str]
    indices: dict[str, np.ndarray]
    digest: str
    summary: dict[str, Any]


def load_clients(root: Path) -> Clients:
    """Read the clients in ``root``. Read once per process and digest.

    Raises:
        UserError: They are missing or damaged.
    """
    summary = read_json(Path(root) / SUMMARY, HINT)
    for name, kind in _KEYS.items():
        if not isinstance(summary.get(name), kind):
            raise _damaged(Path(root) / SUMMARY, f"no {name}")
    labels = None  # the same ones in every entry
    for client, entry in summary["clients"].items():
        if not isinstance(entry, dict) or not isinstance(entry.get("labels"), dict) or "images" not in entry:
            raise _damaged(Path(root) / SUMMARY, f"no counts of client {client}")
        labels = entry["labels"].keys() if labels is None else labels
        if entry["labels"].keys() != labels:
            raise _damaged(Path(root) / SUMMARY, f"other labels at client {client}")
    return _load(str(Path(root).resolve()), summary["digest"])


def require_match(clients: Clients, dataset: Dataset) -> None:
    """Refuse clients that were made from another data set.

    Raises:
        UserError: The digests differ.
    """
    if clients.summary["dataset_digest"] != dataset.digest:
        raise UserError(
            "the clients were made from another data set",
            where=dataset.root,
            expected=dataset.digest,
            found=clients.summary["dataset_digest"],
            hint=HINT,
        )


def clients_digest(dataset_digest: str, indices: dict[str, np.ndarray]) -> str:
    """The digest of who holds which rows of which data set."""
    digest = hashlib.sha256(dataset_digest.encode())
    for client in sorted(indices):
        digest.update(json.dumps([client, indices[client].tolist()], ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def write_clients_table(dataset: Dataset, indices: dict[str, np.ndarray], path: Path) -> None:
    """Write ``clients.parquet``, by client and row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = np.concatenate([indices[client] for client in sorted(indices)])
    owners = [client for client in sorted(indices) for _ in indices[client]]
    columns = {"index": rows, "sample_id": dataset.sample_ids[rows].tolist(), "client": owners}
    pq.write_table(pa.table(columns), path)


@lru_cache(maxsize=8)
def _load(folder: str, digest: str) -> Clients:
    root = Path(folder)
    summary = read_json(root / SUMMARY, HINT)
    table = read_table(root / TABLE, ("index", "client"), HINT)
    try:
        rows, owners = np.array(table["index"], dtype=np.int64), np.array(table["client"], dtype=str)
    except (TypeError, ValueError, OverflowError) as error:
        raise _damaged(root / TABLE, error) from error
    ids = sorted(set(owners.tolist()))
    indices = {client: np.sort(rows[owners == client]) for client in ids}
    for array in indices.values():
        array.setflags(write=False)
    if clients_digest(summary["dataset_digest"], indices) != digest or set(summary["clients"]) != set(ids):
        raise _damaged(root / TABLE, "its content is not what clients.json was written for")
    return Clients(ids, indices, digest, summary)


def _damaged(path: Path, found: object) -> UserError:
    return UserError("a file of the clients is damaged", where=path, found=found, hint=HINT)
