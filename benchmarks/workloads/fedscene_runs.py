"""``fedscene run`` as a contestant."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run, RunError
from benchmarks.harness.figures import per_round

ROOT = Path(__file__).resolve().parents[2]
Settings = Mapping[str, object]


def overrides(settings: Settings) -> list[str]:
    """Return settings as KEY=VALUE."""
    return [f"{key}={value}" for key, value in settings.items()]


def environment(work: Path) -> dict[str, str]:
    """Return the variables of all our processes: code of this tree, runs and Prefect's database below ``work``."""
    return {
        "PYTHONPATH": str(ROOT),
        "FEDSCENE_RUNS": str(work / "runs"),
        "PREFECT_HOME": str(work / "prefect"),
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def python(work: Path, *arguments: object) -> None:
    """Run this interpreter with our variables, outside the measurement.

    Raises:
        RunError: If it fails.
    """
    command, variables = [sys.executable, *map(str, arguments)], os.environ | environment(work)
    done = subprocess.run(command, cwd=work, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RunError(f"{' '.join(command[:4])}: {(done.stdout.strip().splitlines() or ['no output'])[-1]}")


def fedscene(*arguments: str) -> list[str]:
    """Return the command ``fedscene`` of this tree."""
    return [sys.executable, "-m", "flows.cli.main", *arguments]


def our_run(
    name: str,
    title: str,
    settings: Settings,
    work: Path,
    rounds: int,
    *,
    presets: Sequence[str] = (),
    collect: Callable[[Run, Path], Metrics] | None = None,
    variables: Callable[[Path], Mapping[str, object]] = lambda _: {},
) -> Contestant:
    """Return ``fedscene run`` with these settings.

    Args:
        name: The contestant's name.
        title: What the page calls it.
        settings: Its settings.
        work: Where runs and data are.
        rounds: Rounds that are run.
        presets: Its presets.
        collect: Turns a stamped run and the folder of ``fedscene``'s run into figures; default: ``per_round``, and the
            loss of the last model.
        variables: More variables, which may depend on the folder.
    """

    def command(folder: Path) -> list[str]:
        words = [word for preset in presets for word in ("--preset", preset)]
        for text in overrides(dict(settings) | {"federation.rounds": rounds}):
            words += ["--set", text]
        run_id = f"bench-{uuid.uuid4().hex[:12]}"
        (folder / "run_id").write_text(run_id)
        more = [f"{key}={value}" for key, value in variables(folder).items()]
        return ["env", *more, *fedscene("run", "--json", "--run-id", run_id, *words)]

    def figures(run: Run, folder: Path) -> Metrics:
        root = run_folder(work, folder)
        found = collect(run, root) if collect else per_round(run, rounds) | {"loss": run.result["metrics"]["loss"]}
        shutil.rmtree(root)
        return found

    def first_update(folder: Path) -> Path:
        return run_folder(work, folder) / "updates"

    return Contestant(name, title, command, figures, environment(work), first_update)


def run_folder(work: Path, folder: Path) -> Path:
    """Return the folder of a contestant's run."""
    return work / "runs" / (folder / "run_id").read_text()


def megabytes(root: Path) -> float:
    """Return the MB of weights that travelled in the second round of a run."""
    record = json.loads((root / "rounds" / "0002" / "round.json").read_text())
    return sum(stage["bytes_down"] + stage["bytes_up"] for stage in record["stages"]) / 1e6
