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


def _replace(name: Any, prefix: str, new: str) -> Any:
    return new + name.removeprefix(prefix) if isinstance(name, str) and name.startswith(prefix) else name
