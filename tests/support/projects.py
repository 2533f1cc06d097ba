"""A user's project in a temporary folder: git, DVC, the pipeline, and quick settings."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.settings.files import load_settings
from flows.settings.schema import as_values
from tasks.core.yaml_text import dump_yaml

ROOT = Path(__file__).parents[2]
QUICK = (
    "ingest.synthetic.images=120",
    "ingest.synthetic.sites=3",
    "ingest.image_size=32",
    "partition.min_size=8",
    "federation.rounds=2",
    "report.images=4",
    "train.epochs=1",
    "train.lr=0.002",
)


def git(root: Path, *arguments: str) -> str:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *named, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def make_project(root: Path, *overrides: str) -> Path:
    """Create a committed git and DVC repository with the pipeline and quick settings."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("dvc.yaml", "prefect.yaml", "prefect.toml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    for name in ("flows", "tasks", "models"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "data" / "raw").mkdir(parents=True)
    shutil.copy(ROOT / "data" / "raw" / "README.md", root / "data" / "raw")
    values = as_values(load_settings(None, ["tiny"], [*QUICK, *overrides]))
    (root / "params.yaml").write_text(dump_yaml(values))
    git(root, "init", "-q")
    subprocess.run(["dvc", "init", "-q"], cwd=root, check=True, env=environment(root))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a project")
    return root


def environment(root: Path, **more: str) -> dict[str, str]:
    """Return a user's environment with the project's runs and Prefect home."""
    out = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "FEDSCENE_", "MLFLOW_"))}
    project = {
        "FEDSCENE_RUNS": str(root / "runs"),
        "PREFECT_HOME": str(root / ".prefect"),
        "DVC_NO_ANALYTICS": "1",
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    return out | project | more


def command(root: Path, *arguments: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in that environment; a failure shows its output."""
    done = subprocess.run(
        arguments, cwd=root, env=environment(root, **more), capture_output=True, text=True, timeout=400
    )
    if check and done.returncode:
        raise AssertionError(f"{arguments} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


class LocalTask:
    """A Prefect task that calls a function in this process, without a server."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.title = function, ""

    def with_options(self, task_run_name: str) -> "LocalTask":
        self.title = task_run_name
        return self

    def submit(self, *args: Any, **kwargs: Any) -> "LocalTask":
        self.value = self.function(*args, **kwargs)
        return self

    def result(self) -> Any:
        return self.value
