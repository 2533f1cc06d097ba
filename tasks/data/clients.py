"""The clients on disk: which client holds which images.

``clients.parquet``: one row per image that a client or the server holds (``index`` into ``images.npy``, ``sample_id``,
``client``, ``split``, ``pool``, ``step``, the stream chunk). ``clients.json``: counts and distances. Beside them plots
and tables of the same numbers.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import UserError
from models.files import replacing_file, stamp
from tasks.core.json_files import read_json
from tasks.core.tables import read_table
from tasks.data.dataset import SPLITS, Dataset

TABLE, SUMMARY = "clients.parquet", "clients.json"
POOLS = ("labelled", "unlabelled", "server")
HINT = "make the data again (fedscene data partition; a folder under runs/data: remove it, and run again)"
_MISSING = object()
_COLUMNS = ("index", "client", "split", "pool", "step")  # ``step`` is the stream chunk
_KEYS = {
    "digest": str,
    "dataset_digest": str,
    "scheme": str,
    "clients": dict,
    "mean_js_distance": int | float | None,
    "features": dict,
    "settings": dict,
    "seed": int,
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Images of one client, by row.

    Attributes:
        index: Rows of the data set's arrays, int64 [m], ascending.
        split: str [m], ``train``, ``val`` or ``test``.
        pool: str [m], ``labelled`` or ``unlabelled``.
        chunk: int64 [m], the stream chunk of an unlabelled image, from 0.
    """

    index: np.ndarray
    split: np.ndarray
    pool: np.ndarray
    chunk: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """The four arrays, in the order of the table's columns."""
        return self.index, self.split, self.pool, self.chunk

    def chosen(self, split: str, pool: str | None = None, chunk: int | None = None) -> np.ndarray:
        """Return the indices of a split, and of a pool or a stream chunk if given, int64, ascending."""
        picked = self.split == split
        if pool is not None:
            picked &= self.pool == pool
        if chunk is not None:
            picked &= self.chunk == chunk
        return self.index[picked]


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients and their images.

    Attributes:
        ids: The clients, sorted.
        indices: For each client the rows of its labelled training images, int64, ascending; empty where the labelled
            images are at the server.
        digest: sha256 over the data set's digest and the rows of every client.
        summary: The content of ``clients.json``.
        all_rows: All images of each client.
        server: Rows of the labelled images at the server, int64, ascending; empty unless ``labelled.where`` is server.
    """

    ids: list[str]
    indices: dict[str, np.ndarray]
    digest: str
    summary: dict[str, Any]
    all_rows: dict[str, Rows]
    server: np.ndarray

    def rows(self, client: str, split: str = "train", pool: str | None = None, chunk: int | None = None) -> np.ndarray:
        """Return a client's rows of a split, and of a pool or a stream chunk if given, int64, ascending.

        ``val`` and ``test`` are empty where the partition makes no local test sets.
        """
        assert split in SPLITS, split
        assert pool in (None, "labelled", "unlabelled"), pool
        return self.all_rows[client].chosen(split, pool, chunk)

    def count(self, client: str, data: str) -> int:
        """Return how many training images a client has of the kind ``labelled``, ``unlabelled`` or ``both``."""
        return len(self.rows(client, "train", None if data == "both" else data))

    def with_images(self, data: str, without: Collection[str] = ()) -> list[str]:
        """Return the clients that have training images of this kind (``count``), except those in ``without``."""
        return [client for client in self.ids if client not in without and self.count(client, data)]

    def features(self, client: str) -> dict[str, float] | None:
        """Return the parameters of a client's feature skew (``tasks.client.feature_skew``), ``None`` without any."""
        return self.summary["features"].get(client)

    @property
    def skewed_test(self) -> bool:
        """Whether the pooled test and validation images are copied for each client, with its feature skew."""
        return _skewed_test(self.summary)

    @property
    def stream(self) -> tuple[int, int] | None:
        """Return the number of stream chunks and the rounds for which each is in use; ``None`` without streaming."""
        return _stream(self.summary)

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
    """Read the clients in ``root`` and verify their digest; cached while the files stay the same.

    Raises:
        UserError: They are missing or damaged.
    """
    summary = read_json(Path(root) / SUMMARY, HINT)
    for name, kind in _KEYS.items():
        if not isinstance(summary.get(name, _MISSING), kind):
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


def partitioned(dataset: Dataset, clients: Clients) -> Dataset:
    """Return the data set with the splits that hold for these clients.

    They are the data set's own, unless the partition divides all images (``partition.images`` all): then each image
    has the split that its client gives it, so that the pooled test set is the union of the local ones. Images that
    nobody holds, those of dropped sites, are test images if they are annotated.
    """
    if clients.summary["settings"].get("images", "train") == "train":
        return dataset
    splits = np.where(dataset.annotated, "test", "train").astype("<U5")
    splits[clients.server] = "train"
    for rows in clients.all_rows.values():
        splits[rows.index] = rows.split
    splits.setflags(write=False)
    return replace(dataset, splits=splits)


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
    dataset_digest: str,
    rows: Mapping[str, Rows],
    server: np.ndarray,
    features: dict[str, dict[str, float]],
    seed: int,
    skewed_test: bool = False,
    stream: tuple[int, int] | None = None,
) -> str:
    """Compute the digest of the clients' rows and their use, of the data set, and of the feature skew and its use.

    ``stream``: the number of stream chunks and the rounds of each, which say when an unlabelled image is in use.
    """
    digest = hashlib.sha256(dataset_digest.encode())

    def add(value: list[Any]) -> None:
        digest.update(json.dumps(value, ensure_ascii=False).encode() + b"\n")

    for client in sorted(rows):
        add([client, rows[client].chosen("train", "labelled").tolist()])
    for client in sorted(rows):  # other rows are hashed only if any exist
        split, pool = rows[client].split, rows[client].pool
        other = (split != "train") | (pool != "labelled")
        if other.any():
            add([client, *(column[other].tolist() for column in rows[client].columns)])
    if len(server):
        add(["server", server.tolist(), 0])
    if features:
        add([features, seed])
    if skewed_test:
        add(["test", "clients"])
    if stream:
        add(["stream", *stream])
    return digest.hexdigest()


def write_clients_table(dataset: Dataset, rows: Mapping[str, Rows], server: np.ndarray, path: Path) -> None:
    """Write ``clients.parquet`` by client and row; the server's rows come last, with pool ``server`` and no client."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    at_server = Rows(server, *(np.full(len(server), value) for value in ("train", "server", 0)))
    parts = [(client, rows[client]) for client in sorted(rows)] + [("", at_server)]
    index, split, pool, chunk = (np.concatenate(column) for column in zip(*(r.columns for _, r in parts), strict=True))
    owners = [client for client, rows in parts for _ in rows.index]
    ids = dataset.sample_ids[index].tolist()
    columns = {"index": index, "sample_id": ids, "client": owners, "split": split, "pool": pool, "step": chunk}
    with replacing_file(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


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
    rows, server = _group_by_client(columns)
    known = set(columns["split"].tolist()) <= set(SPLITS) and set(columns["pool"].tolist()) <= set(POOLS)
    found = clients_digest(
        summary["dataset_digest"],
        rows,
        server,
        summary["features"],
        summary["seed"],
        _skewed_test(summary),
        _stream(summary),
    )
    if not known or found != digest or set(summary["clients"]) != set(rows):
        raise _damaged(root / TABLE, f"content that does not match {SUMMARY}, with digest {found}", digest)
    indices = {client: part.chosen("train", "labelled") for client, part in rows.items()}
    for array in (server, *indices.values(), *(column for part in rows.values() for column in part.columns)):
        array.setflags(write=False)
    return Clients(list(rows), indices, digest, summary, rows, server)


def _skewed_test(summary: Mapping[str, Any]) -> bool:
    return summary["settings"].get("features", {}).get("test", "clean") == "clients"


def _stream(summary: Mapping[str, Any]) -> tuple[int, int] | None:
    labelled = summary["settings"].get("labelled", {})
    chunks, rounds = labelled.get("streaming", 1), labelled.get("rounds_per_chunk")
    return (chunks, rounds) if chunks > 1 and rounds else None


def _group_by_client(columns: dict[str, np.ndarray]) -> tuple[dict[str, Rows], np.ndarray]:
    """Group the table, in any order, by client; return the clients' rows and the server's."""
    at_server = columns["pool"] == "server"
    order = np.flatnonzero(~at_server)
    order = order[np.lexsort((columns["index"][order], columns["client"][order]))]
    names, starts = np.unique(columns["client"][order], return_index=True)
    parts = np.split(order, starts[1:])
    rows = {
        client: Rows(*(columns[name][part] for name in ("index", "split", "pool", "step")))
        for client, part in zip(names.tolist(), parts, strict=False)
    }
    return rows, np.sort(columns["index"][at_server])


def _damaged(path: Path, found: object, expected: object = None) -> UserError:
    return UserError("a file of the clients is damaged", where=path, expected=expected, found=found, hint=HINT)
