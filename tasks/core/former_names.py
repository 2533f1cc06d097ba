"""Names of metrics and files that runs of earlier releases use."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

from tasks.core.yaml_text import parse_yaml

PERSONAL = "personal_"  # prefix of the metrics of a client's personal model on the pooled test set
_FORMER_PERSONAL = "pooled_"


def former_file_name(name: str) -> str:
    """Return the name that an earlier release gave to a file of a run; the same name if it was never renamed."""
    text = (resources.files("tasks.core") / "former_names.yaml").read_text(encoding="utf-8")
    former: str = parse_yaml(text)["files"].get(name, name)
    return former


def current_metric_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a round's record with every former metric name replaced by its present one."""
    out = dict(record)
    metrics, per_client = out.get("metrics"), out.get("per_client")
    if isinstance(metrics, dict):
        former = f"client/{_FORMER_PERSONAL}"
        out["metrics"] = {_replace(name, former, f"client/{PERSONAL}"): value for name, value in metrics.items()}
    if isinstance(per_client, dict):
        out["per_client"] = {
            client: {_replace(name, _FORMER_PERSONAL, PERSONAL): value for name, value in row.items()}
            if isinstance(row, dict)
            else row
            for client, row in per_client.items()
        }
    return out


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


def _replace(name: Any, prefix: str, new: str) -> Any:
    return new + name.removeprefix(prefix) if isinstance(name, str) and name.startswith(prefix) else name
