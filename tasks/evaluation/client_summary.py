"""What all clients' results say together: distributions over clients, and means over the clients' own models."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tasks.core.evaluation_settings import Protocol
from tasks.core.summary_statistics import over_clients
from tasks.data.partition.participation import TRAINED_ON, site_counts, site_means
from tasks.data.run_data import load_run_data
from tasks.evaluation.bootstrap import INTERVAL
from tasks.evaluation.metric_sets import metric_set
from tasks.evaluation.metrics import combine
from tasks.evaluation.protocols import new_clients

if TYPE_CHECKING:
    from tasks.core.context import RunContext

Result = Mapping[str, Any]  # of one client: ``row``, and ``pooled`` of its own model
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def summarise(
    context: "RunContext",
    shared: Mapping[str, Any],
    results: Mapping[str, Result],
    sizes: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Combine the result of the shared model with those of the clients.

    Args:
        context: The run.
        shared: ``metrics``, ``per_class``, ``per_site``, ``confusion`` of the shared model on the pooled test set;
            nothing of it where clients have their own models. ``mixing``: metrics of the weights between clients.
        results: Client -> its result.
        sizes: Client -> weight in the mean over own models; by default the number of its training images.

    Returns:
        What ``evaluate_model`` returns.
    """
    dataset, clients = load_run_data(context)
    own = {client: result["pooled"] for client, result in sorted(results.items()) if "pooled" in result}
    known = {client: len(clients.indices[client]) for client in own} if sizes is None else sizes
    out = _mean_of(list(own.values()), [known[client] for client in own]) if own else {"metrics": {}} | dict(shared)
    per_client = {client: dict(results[client]["row"]) for client in clients.ids if client in results}
    out["per_client"] = {client: row for client, row in per_client.items() if row}
    metrics = [
        out["metrics"],
        shared.get("mixing", {}),
        client_distribution(out["per_client"], metric_set(context.kind).distribution),
    ]
    if "per_site" in out:
        trained = site_counts(dataset, clients, new_clients(context, clients))
        out["per_site"] = {site: {**row, TRAINED_ON: float(trained[site])} for site, row in out["per_site"].items()}
        metrics.append(site_means(out["per_site"], context.problem.primary_metric))
    out["metrics"] = combine(*metrics)
    return out


def _mean_of(found: Sequence[Mapping[str, Any]], weights: Sequence[float]) -> dict[str, Any]:
    """Average the results of own models on the pooled images; the mean of bounds is no bound of the mean."""
    metrics = [
        {key: value for key, value in pooled["metrics"].items() if not key.startswith(INTERVAL)} for pooled in found
    ]
    out: dict[str, Any] = {"metrics": weighted_mean(metrics, weights)}
    for table in ("per_class", "per_site"):
        rows = [pooled[table] for pooled in found if table in pooled]
        out |= {table: {name: weighted_mean([row[name] for row in rows], weights) for name in rows[0]}} if rows else {}
    return out


def client_distribution(per_client: Mapping[str, Mapping[str, float]], metrics: Sequence[str]) -> dict[str, float]:
    """Describe the distribution of metrics over clients as ``<protocol>/<metric>/<statistic>``.

    The statistics are those of ``over_clients``; the weights are the numbers of test images. A client without
    positives has no AP and is not counted there.
    """
    out: dict[str, float] = {}
    for protocol in PROTOCOLS:
        for metric in metrics:
            rows = [row for row in per_client.values() if f"{protocol}/{metric}" in row]
            if not rows:
                continue
            values, weights = ([row[f"{protocol}/{key}"] for row in rows] for key in (metric, "images"))
            found = over_clients(values, weights, low_is_worst=metric != "loss")
            out |= {f"{protocol}/{metric}/{key}": value for key, value in found.items()}
    return out


def weighted_mean(rows: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """Average the rows key by key, with weights that need not sum to 1; if all are 0, each row counts alike.

    They are where clients have no labelled images.
    """
    weights = weights if any(weights) else [1.0] * len(rows)
    return {key: float(np.average([row[key] for row in rows], weights=weights)) for key in rows[0]}
