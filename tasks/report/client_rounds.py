"""Clients by rounds as tables to open: one metric per cell as CSV, all metrics as Parquet."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.files import remove, replacing_file, write_text
from tasks.core.records import RoundRecord
from tasks.core.round_summary import client_metric, protocols_of

CSV, PARQUET = "clients_by_round.csv", "clients_by_round.parquet"


def write_client_rounds(folder: Path, records: Sequence[RoundRecord]) -> list[Path]:
    """Write both tables; return the files, none where no client was evaluated.

    ``clients_by_round.csv``: a row per client and protocol, a column per evaluated round, macro AP or accuracy; an
    undefined value is empty. ``clients_by_round.parquet``: a row per round, client and protocol with all metrics.
    """
    files = [folder / CSV, folder / PARQUET]
    evaluated = [record for record in records if record.per_client]
    for file in files:
        remove(file)  # of an earlier report that no longer applies
    if not evaluated:
        return []
    _write_csv(files[0], evaluated)
    _write_parquet(files[1], evaluated)
    return files


def _write_csv(path: Path, records: Sequence[RoundRecord]) -> None:
    metric = client_metric(records[-1])
    cells: dict[tuple[str, str], dict[int, float]] = {}
    for record in records:
        for protocol in protocols_of(record):
            for client, row in record.per_client.items():
                value = row.get(f"{protocol}/{metric}", math.nan)
                if math.isfinite(value):
                    cells.setdefault((protocol, client), {})[record.round] = value
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["protocol", "client", *(f"{metric}, round {record.round}" for record in records)])
    for (protocol, client), values in sorted(cells.items()):
        writer.writerow([protocol, client, *(values.get(record.round, "") for record in records)])
    write_text(path, text.getvalue())


def _write_parquet(path: Path, records: Sequence[RoundRecord]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row for record in records for row in _long_rows(record)]
    metrics = sorted({name for row in rows for name in row} - {"round", "client", "protocol"})
    names = [("round", pa.int64()), ("client", pa.string()), ("protocol", pa.string())]
    schema = pa.schema([*names, *((metric, pa.float64()) for metric in metrics)])
    with replacing_file(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema), temporary)


def _long_rows(record: RoundRecord) -> list[dict[str, Any]]:
    rows = []
    for client, row in record.per_client.items():
        for protocol in protocols_of(record):
            own = {name.removeprefix(f"{protocol}/"): v for name, v in row.items() if name.startswith(f"{protocol}/")}
            if own:
                rows.append({"round": record.round, "client": client, "protocol": protocol} | own)
    return rows
