"""Names of metrics and files that runs of earlier releases use."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

from tasks.core.yaml_text import parse_yaml

# Prefixes of the metrics of a client's own model on the pooled test set, which are the protocol ``global`` now
_FORMER_OWN = ("personal_", "pooled_")
# A distribution's statistics that have another name: its standard deviation had the divisor n
_FORMER_STATISTICS = {"std": "population_std"}
_PROTOCOLS = ("global/", "local/", "matched/", "new_clients/")


def former_file_name(name: str) -> str:
    """Return the name that an earlier release gave to a file of a run; the same name if it was never renamed."""
    text = (resources.files("tasks.core") / "former_names.yaml").read_text(encoding="utf-8")
    former: str = parse_yaml(text)["files"].get(name, name)
    return former


def current_metric_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a round's record with every former metric name replaced by its present one.

    Clients' metrics were those of their local test images, without a prefix, and ``personal_<metric>`` of their own
    models on the pooled ones; distributions over clients were ``client/<metric>/<statistic>``.
    """
    out = dict(record)
    metrics, per_client = out.get("metrics"), out.get("per_client")
    if isinstance(metrics, dict):
        out["metrics"] = {_of_distribution(name): value for name, value in metrics.items()}
    if isinstance(per_client, dict):
        out["per_client"] = {
            client: {_of_client(name): value for name, value in row.items()} if isinstance(row, dict) else row
            for client, row in per_client.items()
        }
    return out


def _of_client(name: Any) -> Any:
    """Return the present name of a metric in a client's row."""
    if not isinstance(name, str) or name.startswith(_PROTOCOLS):
        return name
    for prefix in _FORMER_OWN:
        if name.startswith(prefix):
            return f"global/{name.removeprefix(prefix)}"
    return f"local/{name}"


def _of_distribution(name: Any) -> Any:
    """Return the present name of a statistic over clients; any other name is unchanged."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 3 or parts[0] != "client":
        return name
    return f"{_of_client(parts[1])}/{_FORMER_STATISTICS.get(parts[2], parts[2])}"


_FORMER_STATE = ("model", "prototypes", "groups", "client_states", "server_state", "overlays")  # of a round's record


def current_round_state(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a round's record with the former fields of its models and tensors as one ``state``."""
    out = dict(record)
    former = {name: out.pop(name) for name in _FORMER_STATE if name in out}
    if "state" in out or "model" not in former:
        return out
    found = former.get("prototypes", [])
    clusters = {f"cluster/{k}": ref for k, ref in enumerate(found if isinstance(found, list) else [found])}
    server = former.get("server_state")
    out["state"] = {
        "models": {"global": former["model"], **clusters},
        "private": former.get("client_states", {}),
        "personal": former.get("overlays", {}),
        "server": {"method": server} if server else {},
        "cluster_of": former.get("groups", {}),
    }
    return out
