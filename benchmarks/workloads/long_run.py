"""Many rounds on Prefect's local server: whether rounds stay as fast as the first ones, and how its database grows."""

from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.harness.figures import WARM_UP, between
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.empty import SETTINGS
from benchmarks.workloads.fedscene_runs import our_run
from benchmarks.workloads.training import make_job

CLIENTS = 50


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        "50 clients with next to nothing to train, 100 rounds, run once: with engine prefect on the server that "
        "Prefect starts by itself, with a new database, and with engine local. The first and the last tenth of the "
        "rounds are compared."
    )
    figures = {
        "cpu_s": "CPU-s a round",
        "wall_s": "wall s a round",
        "first_s": "wall s, first tenth",
        "last_s": "wall s, last tenth",
        "database_mb": "database, MB",
    }
    return About("Long run", text, "local", figures, ("cpu_s", "wall_s"))


def prepare(name: str, options: Options) -> Prepared:
    """Make the data; return the contestants."""
    rounds = 10 if options.quick else 100
    settings, job = make_job(name, options, [2] * CLIENTS, 16, 4, False, SETTINGS, rounds)
    return Prepared(
        [_contestant(engine, dict(settings), job.parent, rounds) for engine in ("prefect", "local")],
        {"clients": CLIENTS, "rounds": rounds},
    )


def _contestant(engine: str, settings: dict[str, object], work: Path, rounds: int) -> Contestant:
    tenth = max(1, rounds // 10)

    def home(folder: Path) -> dict[str, object]:
        return {"PREFECT_HOME": folder / "prefect"}

    def collect(run: Run, root: Path) -> Metrics:
        del root
        found = between(run, WARM_UP, rounds - 1)
        found["first_s"] = between(run, WARM_UP, WARM_UP + tenth)["wall_s"]
        found["last_s"] = between(run, rounds - 1 - tenth, rounds - 1)["wall_s"]
        return found

    own = settings | {"federation.engine": engine, "federation.workers": 2}
    made = our_run(engine, f"FedScene, engine {engine}, 2 workers", own, work, rounds, collect=collect, variables=home)

    def with_database(run: Run, folder: Path) -> Metrics:
        files = list((folder / "prefect").glob("prefect.db*"))
        size = {"database_mb": sum(file.stat().st_size for file in files) / 1e6} if files else {}
        return made.collect(run, folder) | size

    return made.once().collecting(with_database)
