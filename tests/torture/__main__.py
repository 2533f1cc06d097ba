"""Kill a run at each of its events, restart it, and compare everything with an undisturbed run.

``make torture`` tries every event of every phase, the rounds with FedAvg and with MOON: about half an hour on two
cores. ``--sample 6 --seed 1`` tries six of each phase. The results go to ``runs/torture/`` (``--out``):
``torture.json`` with every trial, and the table that is printed at the end. The exit status is 1 if anything differs.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from flows.engine import environment

environment.prepare()

from events import Events  # noqa: E402
from phases import PHASES, Phase, as_json, faults, listing, make_cheap, template  # noqa: E402

TIMEOUT_S = 300
MAX_STATEMENTS = 40  # of the creation of a database, which takes seconds: so many statements are tried


@dataclass
class Child:
    """The end of a process: its result, the events it counted, its output."""

    result: dict[str, Any] | None
    events: list[str]
    output: str
    killed: bool


@dataclass
class Trial:
    """One kill and its result."""

    phase: str
    method: str
    event: int
    what: str
    torn: bool
    faults: list[str]
    output: str


def in_child(phase: Phase, runs: Path, end_at: int | None, torn: bool) -> Child:
    """Run the phase in a fork of this process, which has imported everything and started no thread."""
    notes = runs.with_name(f"{runs.name}.notes")
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _live(phase, runs, Events(str(runs), end_at, torn), notes)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + TIMEOUT_S
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            ended = os.waitpid(pid, 0)
            break
        time.sleep(0.005)
    result, events = notes / "result.json", notes / "events.json"
    return Child(
        json.loads(result.read_text()) if result.exists() else None,
        json.loads(events.read_text()) if events.exists() else [],
        (notes / "output.txt").read_text()[-4000:],
        os.WIFSIGNALED(ended[1]),
    )


def _live(phase: Phase, runs: Path, events: Events, notes: Path) -> None:
    out = os.open(notes / "output.txt", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ["FEDSCENE_RUNS"] = str(runs)
    os.chdir(notes)
    make_cheap(phase)
    events.watch_files("rounds/0001" if phase.name == "rounds" else None)
    if phase.name != "data":
        events.watch_mlflow()
    result = phase.work(events, runs)
    (notes / "events.json").write_text(json.dumps(events.seen))
    (notes / "result.json").write_text(as_json(result))


def chosen(phase: Phase, events: list[str], sample: int | None, rng: random.Random) -> list[tuple[int, bool]]:
    """Return the events to kill at, writes in both ways; only some statements of a database's creation."""
    numbers = list(range(1, len(events) + 1))
    if phase.name == "database":
        statements = [number for number in numbers if events[number - 1].startswith("sql")]
        step = max(1, len(statements) // MAX_STATEMENTS)
        numbers = sorted(set(numbers) - set(statements) | set(statements[::step]))
    kills = [(number, False) for number in numbers]
    kills += [(number, True) for number in numbers if events[number - 1].startswith("open for writing")]
    return sorted(kills if sample is None else rng.sample(kills, min(sample, len(kills))))


def torture(phase: Phase, scratch: Path, base: Path | None, sample: int | None, rng: random.Random) -> list[Trial]:
    """Run all kills of one phase."""
    root = scratch / f"{phase.name}-{phase.method}"
    before, runs = root / "before", root / "runs"
    template(phase, before, base, in_child)
    shutil.copytree(before, runs)
    wanted = in_child(phase, runs, None, False)
    if wanted.result is None:
        raise SystemExit(f"{phase} fails undisturbed:\n{wanted.output}")
    files, trials = listing(runs), []
    kills = chosen(phase, wanted.events, sample, rng)
    print(f"{phase.name}, {phase.method}: {len(wanted.events)} events, {len(kills)} kills", flush=True)
    for count, (number, torn) in enumerate(kills, 1):
        shutil.rmtree(runs)
        shutil.copytree(before, runs)
        killed = in_child(phase, runs, number, torn)
        again = in_child(phase, runs, None, False)
        if not killed.killed:
            found = ["it was not killed: its events differ between runs"]
        elif again.result is None:
            found = ["it cannot be restarted"]
        else:
            found = faults(phase, runs, again.result, wanted.result, files)
        what = wanted.events[number - 1]
        trials.append(Trial(phase.name, phase.method, number, what, torn, found, again.output if found else ""))
        if found:
            print(f"  {number}{' (torn)' if torn else ''} {what}: {'; '.join(found)[:300]}", flush=True)
        elif count % 25 == 0:
            print(f"  {count} of {len(kills)}", flush=True)
    return trials


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--methods", nargs="+", default=["fedavg", "moon"])
    parser.add_argument("--sample", type=int, help="kills of each phase, instead of all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--database", type=Path, help="an MLflow database to start with, instead of creating one")
    parser.add_argument("--out", type=Path, default=environment.runs_root() / "torture")
    options = parser.parse_args()
    began, rng = time.monotonic(), random.Random(options.seed)  # noqa: S311 - which events, no secret
    _import_all()
    trials, rows = [], []
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        scratch, base = Path(folder), None
        if set(options.phases) & {"start", "rounds", "end"}:
            base = scratch / "base"
            base.mkdir()
            if options.database:
                shutil.copy(options.database, base / "mlflow.db")
            for name in ("database", "data"):
                made = in_child(Phase(name, "fedavg"), base, None, False)
                assert made.result is not None, made.output
            _forget_runs(base)
        for name in options.phases:
            for method in options.methods if name in ("start", "rounds") else options.methods[:1]:
                start = time.monotonic()
                new = torture(Phase(name, method), scratch, base, options.sample, rng)
                bad = sum(bool(trial.faults) for trial in new)
                rows.append(f"{name:9} {method:8} {len(new):6} kills {bad:5} faults {time.monotonic() - start:7.0f} s")
                trials += new
                _write(options.out, trials, rows)
    rows.append(f"{len(trials)} kills in {time.monotonic() - began:.0f} s")
    print("\n".join(rows))
    _write(options.out, trials, rows)
    return int(any(trial.faults for trial in trials))


def _write(out: Path, trials: list[Trial], rows: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "torture.json").write_text(json.dumps([asdict(trial) for trial in trials], indent=1))
    (out / "torture.txt").write_text("\n".join(rows) + "\n")


def _import_all() -> None:
    """Import what a run imports before any process is forked, and look up MLflow's latest schema, which is slow."""
    import functools
    from importlib import import_module

    import torch

    for name in (
        "mlflow.pytorch",
        "mlflow.tracking",
        "torchvision",
        "timm",
        "sklearn.metrics",
        "scipy.stats",
        "pyarrow.parquet",
        "matplotlib.backends.backend_agg",
        "torch._dynamo",
        "torch.export",
        "mlflow.store.tracking.sqlalchemy_store",
        "flows.federate",
        "tasks.evaluation.evaluate",
        "tasks.report.plots",
        "tasks.tracking.mlflow_runs",
    ):
        import_module(name)
    utils = import_module("mlflow.store.db.utils")
    torch.set_num_threads(1)
    utils._get_latest_schema_revision = functools.cache(utils._get_latest_schema_revision)
    utils._get_latest_schema_revision()
    assert threading.active_count() == 1, "a fork would lose the other threads"


def _forget_runs(base: Path) -> None:
    """Delete the run from the database that was created for it."""
    import sqlite3

    with sqlite3.connect(base / "mlflow.db") as database:
        for table in ("tags", "params", "runs"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - fixed names


if __name__ == "__main__":
    sys.exit(main())
