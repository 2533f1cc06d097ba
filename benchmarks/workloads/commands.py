"""``make run`` in a fresh clone, and the whole test suite: once each, and only if they are named."""

from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import ROOT

INSTALLED = ".venv/.installed"  # make's stamp; as old as it may be, nothing is installed here


def about(name: str) -> About:
    """Return what the page says."""
    texts = {
        "make-run": (
            "make run",
            "The demo under DVC and Prefect, in a fresh clone with this environment; once.",
        ),
        "suite": ("Test suite", "`make test`: every test, on all cores; once."),
    }
    title, text = texts[name]
    return About(title, text, name, {"minutes": "minutes", "cpu_s": "CPU-s"})


def prepare(name: str, options: Options) -> Prepared:
    """Return the only contestant."""
    del options

    def command(folder: Path) -> list[str]:
        make = ["make", "-o", INSTALLED]
        if name == "suite":
            return [*make, "-C", str(ROOT), "test"]
        clone = folder / "clone"
        steps = f"git clone -q '{ROOT}' '{clone}' && ln -s '{ROOT}/.venv' '{clone}/.venv'"
        steps += f" && echo .venv >> '{clone}/.git/info/exclude'"
        variables = f"PYTHONPATH='{clone}' PREFECT_HOME='{folder}/prefect' FEDSCENE_RUNS='{clone}/runs'"
        return ["sh", "-c", f"{steps} && {variables} {' '.join(make)} -C '{clone}' run"]

    def collect(run: Run, folder: Path) -> Metrics:
        del folder
        assert run.end is not None
        return {"minutes": run.end.wall / 60, "cpu_s": run.end.cpu}

    return Prepared([Contestant(name, f"`make {'test' if name == 'suite' else 'run'}`", command, collect).once()], {})
