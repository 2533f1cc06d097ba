"""Defaults of the process: no telemetry, one torch thread per client, time for a fresh Prefect database.

Set before Prefect, MLflow or torch is imported; what the user has set stays.
"""

import os
from pathlib import Path

DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    # The recorder writes every task event in its own transaction unless told otherwise, and SQLite then stalls.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_TASKS_DEFAULT_NO_CACHE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
}


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def prepare() -> None:
    """Set the defaults that are not set yet."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    _bypass_proxy_on_loopback()


def _bypass_proxy_on_loopback() -> None:
    """Keep servers of this machine (Prefect's, MLflow's) off any proxy; the user's entries stay.

    Both spellings are set, as some libraries read one and some the other.
    """
    if not any(value for name, value in os.environ.items() if name.lower() in PROXIES):
        return
    texts = (os.environ.get("no_proxy", ""), os.environ.get("NO_PROXY", ""))
    entries = [entry.strip() for text in texts for entry in text.split(",") if entry.strip()]
    if "*" not in entries:
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*entries, *LOOPBACK]))


def prepare_torch() -> None:
    """Use one torch thread per client: concurrency comes from clients, and bits do not depend on the workers."""
    import torch

    torch.set_num_threads(1)


def runs_root() -> Path:
    """Return the folder of runs: ``FEDSCENE_RUNS``, or ``runs`` in the working directory."""
    return Path(os.environ.get("FEDSCENE_RUNS") or "runs").resolve()
