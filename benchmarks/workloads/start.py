"""From the command to the first trained batch, and to the help text."""

from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import environment, fedscene, our_run
from benchmarks.workloads.pfl_mini import CLIENTS, SETTINGS
from benchmarks.workloads.training import make_job, others

ENGINES = (("local", 1), ("prefect", 2))


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        "pfl-mini's data, which are prepared already: from the start of the process until a client has trained a batch "
        "of ten images (ours: until its update is written). The help text is that of `fedscene --help`."
    )
    return About("Start", text, "hand-1", {"cpu_s": "CPU-s", "seconds": "seconds"}, ("seconds",))


def prepare(name: str, options: Options) -> Prepared:
    """Make the data; return the contestants."""
    one_batch = {"train.steps": 1, "federation.workers": 1}
    settings, job = make_job(name, options, [20] * CLIENTS, 32, 10, False, SETTINGS | one_batch, 1)
    work = job.parent
    found = [Contestant("help", "`fedscene --help`", lambda _: fedscene("--help"), _whole, environment(work))]
    for engine, workers in ENGINES:
        own = settings | {"federation.engine": engine, "federation.workers": workers}
        title = f"FedScene, engine {engine}, {workers} worker{'s' if workers > 1 else ''}"
        found.append(our_run(f"ours-{engine}-{workers}", title, own, work, 1, collect=_until_first))
    peers = others(job, options, _until_first, ("hand-1", "pfl-1", "flower-2"))
    return Prepared([*found, *peers], {"clients": CLIENTS})


def _whole(run: Run, folder: Path) -> Metrics:
    del folder
    assert run.end is not None
    return {"cpu_s": run.end.cpu, "seconds": run.end.wall}


def _until_first(run: Run, folder: Path) -> Metrics:
    del folder
    if run.first is None:
        raise KeyError("a first batch")
    return {"cpu_s": run.first.cpu, "seconds": run.first.wall}
