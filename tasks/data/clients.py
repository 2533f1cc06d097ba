"""The clients on disk: who holds which images.

``clients.parquet`` one row per image that a client or the server holds (``index`` into ``images.npy``, ``sample_id``,
``client``, ``split``, ``pool``, ``step``); ``clients.json`` counts and distances; images and tables of both.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import UserError
from models.files import replacing_file
from tasks.data.dataset import SPLITS, Dataset, read_json, read_table, stamp

TABLE, SUMMARY = "clients.parquet", "clients.json"
POOLS = ("labelled", "unlabelled", "server")
HINT = "make the data again (fedscene data partition; a folder under runs/data: remove it, and run again)"
_COLUMNS = ("index", "client", "split", "pool", "step")
_KEYS = {
    "digest": str,
    "dataset_digest": str,
    "scheme": str,
    "clients": dict,
    "mean_js_distance": int | float,
    "features": dict,
    "seed": int,
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Images of one client, by row.

    Attributes:
        index: Rows of the data set's arrays, int64 [m], ascending.
        split: str [m], what the client uses them for.
        pool: str [m], ``labelled`` or ``unlabelled``.
        step: int64 [m], the part in which an unlabelled image arrives, from 0.
    """

    index: np.ndarray
    split: np.ndarray
    pool: np.ndarray
    step: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """The four arrays."""
        return self.index, self.split, self.pool, self.step

    def chosen(self, split: str, pool: str | None = None, step: int | None = None) -> np.ndarray:
        """Indices of a split, and of a pool or a part if given, int64, ascending."""
        picked = self.split == split
        if pool is not None:
            picked &= self.pool == pool
        if step is not None:
            picked &= self.step == step
        return self.index[picked]


@dataclass(frozen=True, eq=False)
class Clients:
    """Who holds what.

    Attributes:
        ids: The clients, sorted.
        indices: For each client the rows that it trains on with their labels, int64, ascending. None where the
            labels are at the server.
        digest: sha256 over the data set's digest and who holds what.
        summary: What ``clients.json`` holds.
        held: All that each client holds.
        server: Rows of the labelled images at the server, int64, ascending; none unless the partition put some there.
    """

    ids: list[str]
    indices: dict[str, np.ndarray]
    digest: str
    summary: dict[str, Any]
    held: dict[str, Rows]
    server: np.ndarray

    def rows(self, client: str, split: str = "train", pool: str | None = None, step: int | None = None) -> np.ndarray:
        """A client's rows of a split, and of a pool or a part of the stream if given, int64, ascending.

        ``val`` and ``test`` are empty where the partition gives clients no test images of their own.
        """
        assert split in SPLITS, split
        assert pool in (None, "labelled", "unlabelled"), pool
        return self.held[client].chosen(split, pool, step)

    def features(self, client: str) -> dict[str, float] | None:
        """What this client's camera does (``tasks.client.feature_skew``); ``None``: nothing."""
        return self.summary["features"].get(client)

    def require_labels(self) -> None:
        """Refuse supervised training where clients have no labels.

        Raises:
            UserError: The labelled images are at the server.
        """
        if not any(len(rows) for rows in self.indices.values()):
            raise UserError(
                "the clients have no labelled images, so a supervised method cannot train on them",
                where="partition.labelled.where",
                expected="all or clients",
                found=self.summary["settings"]["labelled"]["where"],
            )


def load_clients(root: Path) -> Clients:
    """Read the clients in ``root`` and compare them with their digest; once per process while the files stay the same.

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
    folder = Path(root).resolve()
    return _load(str(folder), summary["digest"], (stamp(folder / SUMMARY), stamp(folder / TABLE)))


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


def clients_digest(
    dataset_digest: str, held: Mapping[str, Rows], server: np.ndarray, features: dict[str, dict[str, float]], seed: int
) -> str:
    """The digest of who holds which rows of which data set, for what, and of how clients' images are changed."""
    digest = hashlib.sha256(dataset_digest.encode())

    def add(value: list[Any]) -> None:
        digest.update(json.dumps(value, ensure_ascii=False).encode() + b"\n")

    for client in sorted(held):
        add([client, held[client].chosen("train", "labelled").tolist()])
    for client in sorted(held):  # all else is hashed only where there is some
        split, pool = held[client].split, held[client].pool
        other = (split != "train") | (pool != "labelled")
        if other.any():
            add([client, *(column[other].tolist() for column in held[client].columns)])
    if len(server):
        add(["server", server.tolist(), 0])
    if features:
        add([features, seed])
    return digest.hexdigest()


def write_clients_table(dataset: Dataset, held: Mapping[str, Rows], server: np.ndarray, path: Path) -> None:
    """Write ``clients.parquet``, by client and row; the server's rows last, with the pool ``server`` and no client."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    at_server = Rows(server, *(np.full(len(server), value) for value in ("train", "server", 0)))
    parts = [(client, held[client]) for client in sorted(held)] + [("", at_server)]
    index, split, pool, step = (np.concatenate(column) for column in zip(*(r.columns for _, r in parts), strict=True))
    owners = [client for client, rows in parts for _ in rows.index]
    ids = dataset.sample_ids[index].tolist()
    columns = {"index": index, "sample_id": ids, "client": owners, "split": split, "pool": pool, "step": step}
    with replacing_file(path) as beside:
        pq.write_table(pa.table(columns), beside)


@lru_cache(maxsize=8)
def _load(folder: str, digest: str, stamps: tuple[tuple[int, ...], ...]) -> Clients:
    root = Path(folder)
    summary = read_json(root / SUMMARY, HINT)
    table = read_table(root / TABLE, _COLUMNS, HINT)
    try:
        kinds = {"index": np.int64, "step": np.int64}
        columns = {name: np.array(table[name], dtype=kinds.get(name, str)) for name in _COLUMNS}
    except (TypeError, ValueError, OverflowError) as error:
        raise _damaged(root / TABLE, error) from error
    held, server = _held(columns)
    known = set(columns["split"].tolist()) <= set(SPLITS) and set(columns["pool"].tolist()) <= set(POOLS)
    found = clients_digest(summary["dataset_digest"], held, server, summary["features"], summary["seed"])
    if not known or found != digest or set(summary["clients"]) != set(held):
        raise _damaged(root / TABLE, f"its content is not what {SUMMARY} was written for: {found}", digest)
    indices = {client: rows.chosen("train", "labelled") for client, rows in held.items()}
    for array in (server, *indices.values(), *(column for rows in held.values() for column in rows.columns)):
        array.setflags(write=False)
    return Clients(list(held), indices, digest, summary, held, server)


def _held(columns: dict[str, np.ndarray]) -> tuple[dict[str, Rows], np.ndarray]:
    """The table by client, and the server's rows; whatever order it is in."""
    at_server = columns["pool"] == "server"
    order = np.flatnonzero(~at_server)
    order = order[np.lexsort((columns["index"][order], columns["client"][order]))]
    names, starts = np.unique(columns["client"][order], return_index=True)
    parts = np.split(order, starts[1:])
    held = {
        client: Rows(*(columns[name][part] for name in ("index", "split", "pool", "step")))
        for client, part in zip(names.tolist(), parts, strict=False)
    }
    return held, np.sort(columns["index"][at_server])


def _damaged(path: Path, found: object, expected: object = None) -> UserError:
    return UserError("a file of the clients is damaged", where=path, expected=expected, found=found, hint=HINT)
