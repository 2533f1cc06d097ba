"""Numbers derived from finished rounds, shared by tracking, report and plots: losses, traffic, the best round."""

import math
from collections.abc import Sequence
from pathlib import Path

from models.errors import UserError
from tasks.core.json_files import damaged, read_json
from tasks.core.names import metric_part, metric_parts
from tasks.core.problem import primary_metric
from tasks.core.records import RoundRecord, read_round
from tasks.core.summary_statistics import distribution

KEY_LIMIT = 250  # MLflow's limit on the length of a metric's name
ROUND_MARKER = "round"


def load_records(run_root: Path, rounds: int | None = None) -> list[RoundRecord]:
    """Load the finished rounds of a run, in order; only those up to ``rounds`` if it is given.

    Only folders that are named by a number count: a round that is still being written has another name.

    Raises:
        UserError: If there is no finished round, or a ``round.json`` cannot be read.
    """
    folders = sorted(
        (path for path in (run_root / "rounds").glob("*") if path.is_dir() and path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    folders = [folder for folder in folders if rounds is None or int(folder.name) <= rounds]
    if not folders:
        raise UserError("The run has no finished round", where=run_root / "rounds", hint="fedscene run")
    return [_read_round(folder / "round.json") for folder in folders]


def _read_round(path: Path) -> RoundRecord:
    hint, what = "delete this round's folder and all later ones, then resume the run", "a round's record"
    value = read_json(path, hint, what=what)
    try:
        return read_round(value, int(path.parent.name))
    except ValueError as error:
        raise damaged(path, error, hint, what) from error


def megabytes(record: RoundRecord) -> float:
    """Return the MB of weights that travelled in a round, to and from the clients."""
    return sum(stage.bytes_down + stage.bytes_up for stage in record.stages) / 1e6


def best_score(record: RoundRecord) -> float:
    """Return what rounds are chosen by: macro-AP, or accuracy, on the validation images, not on the test set.

    Without validation images it is the test set's, for want of better; NaN where the round was not scored.
    """
    metric = primary_metric(record.metrics)
    return record.metrics.get(f"val_{metric}", record.metrics.get(metric, math.nan))


def best_round(records: Sequence[RoundRecord]) -> int:
    """Return the round with the highest ``best_score``; the earliest of equals, the last if none has one."""
    finite = [(-best_score(record), record.round) for record in records if math.isfinite(best_score(record))]
    return min(finite)[1] if finite else records[-1].round


def last_evaluated(records: Sequence[RoundRecord]) -> RoundRecord:
    """Return the last round that was evaluated, or the last round if none was (``evaluation.every``)."""
    return next((record for record in reversed(records) if record.metrics), records[-1])


def client_quality(record: RoundRecord) -> dict[str, float]:
    """Map each client to its macro-AP or accuracy by the first of ``protocols_of`` that evaluated it.

    Clients without any are left out: an AP is not defined without positives.
    """
    metric, protocols = client_metric(record), protocols_of(record)
    found = {}
    for client, row in record.per_client.items():
        names = [name for name in (f"{protocol}/{metric}" for protocol in protocols) if name in row]
        if names and math.isfinite(row[names[0]]):
            found[client] = row[names[0]]
    return found


def protocols_of(record: RoundRecord) -> list[str]:
    """Return the protocols by which clients were evaluated, in the order in which reports show them."""
    present = {name.partition("/")[0] for row in record.per_client.values() for name in row}
    return [protocol for protocol in ("local", "matched", "global", "new_clients") if protocol in present]


def protocol_quality(record: RoundRecord, protocol: str) -> dict[str, float]:
    """Map each client that a protocol evaluated to its macro-AP or accuracy; those without a value are left out."""
    name = f"{protocol}/{client_metric(record)}"
    values = {client: row.get(name, math.nan) for client, row in record.per_client.items()}
    return {client: value for client, value in values.items() if math.isfinite(value)}


def client_metric(record: RoundRecord) -> str:
    """Return the metric that clients are compared by: ``macro_ap`` or ``accuracy``."""
    return primary_metric([name.partition("/")[2] for row in record.per_client.values() for name in row])


def client_losses(record: RoundRecord, stage: int | None = None) -> dict[str, dict[str, float]]:
    """Return loss term -> client -> mean over its training in ``stage`` (``None``: the last stage with updates)."""
    if not record.updates:
        return {}
    updates = record.updates.get(max(record.updates) if stage is None else stage, [])
    terms = sorted({term for update in updates for term in update.sums})
    return {term: {u.client: u.mean(term) for u in updates if term in u.sums} for term in terms}


def main_losses(record: RoundRecord) -> list[float]:
    """Return the clients' losses in the last stage: the term ``classification``, or else the first one."""
    terms = client_losses(record)
    name = "classification" if "classification" in terms else next(iter(terms), None)
    return list(terms[name].values()) if name else []


def completed_clients(record: RoundRecord) -> int:
    """Count the clients with at least one update that counted."""
    return len({update.client for updates in record.updates.values() for update in updates})


def totals(record: RoundRecord) -> dict[str, float]:
    """Sum bytes down, bytes down as the paper sends them, bytes up and wall seconds over all stages."""
    return {
        "bytes_down": float(sum(stage.bytes_down for stage in record.stages)),
        "bytes_down_naive": float(sum(stage.bytes_down_naive for stage in record.stages)),
        "bytes_up": float(sum(stage.bytes_up for stage in record.stages)),
        "seconds": float(sum(stage.seconds for stage in record.stages)),
    }


def round_metrics(record: RoundRecord) -> dict[str, float]:
    """Everything of a round that is one number, under a name that MLflow accepts.

    Names: the global metrics and the distributions over clients (``local/<metric>/mean`` etc.) as they are;
    nothing of these in a round that was not evaluated; ``class/<class>/<metric>``, ``site/<site>/<metric>``,
    ``client_loss/stage<n>/<term>/mean|std|worst_decile``, ``clusters/count``, ``clusters/<index>/size``,
    ``clients/participants|completed|dropped``, ``stage/<name>/<cost>`` and ``total/<cost>``, where a cost is
    bytes_down, bytes_down_naive, bytes_up or seconds; and ``round``, the round's own number.
    """
    pairs: list[tuple[str, float]] = [(ROUND_MARKER, record.round), *record.metrics.items()]
    for title, table in (("class", record.per_class), ("site", record.per_site)):
        parts = metric_parts(table)
        pairs += [
            (f"{title}/{parts[row]}/{key}", value) for row, cells in table.items() for key, value in cells.items()
        ]
    for stage in sorted(record.updates):
        for term, losses in client_losses(record, stage).items():
            found = distribution(list(losses.values()))
            prefix = f"client_loss/stage{stage}/{metric_part(term)}"
            pairs += [(f"{prefix}/{key}", found[key]) for key in ("mean", "std", "worst_decile")]
    sizes: dict[int, int] = {}
    for group in record.state.cluster_of.values():
        sizes[group] = sizes.get(group, 0) + 1
    if sizes:
        pairs.append(("clusters/count", len(sizes)))
        pairs += [(f"clusters/{group}/size", size) for group, size in sorted(sizes.items())]
    pairs += [
        ("clients/participants", len(record.participants)),
        ("clients/completed", completed_clients(record)),
        ("clients/dropped", len({entry.client for entry in record.dropped})),
    ]
    for log in record.stages:
        costs = {key: value for key, value in vars(log).items() if key != "name"}
        pairs += [(f"stage/{metric_part(log.name)}/{key}", value) for key, value in costs.items()]
    pairs += [(f"total/{key}", value) for key, value in totals(record).items()]
    return _unique(pairs)


def _unique(pairs: list[tuple[str, float]]) -> dict[str, float]:
    """Return the pairs as a dict; a name that is taken (classes that differ in a refused character) gets a number."""
    result: dict[str, float] = {}
    for name, value in pairs:
        key, number = name[:KEY_LIMIT], 1
        while key in result:
            number += 1
            key = f"{name[: KEY_LIMIT - 5]}_{number}"
        result[key] = float(value)
    return result
