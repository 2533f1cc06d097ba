"""Run the benchmarks and write the page: ``make bench``, or ``python -m benchmarks --help``."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.alternate import alternate
from benchmarks.harness.contestant import RunError
from benchmarks.harness.page import page
from benchmarks.harness.results import Entry, Result, load, machine, save
from benchmarks.peers import ensure
from benchmarks.workloads import ON_REQUEST, WORKLOADS, Options, load_workload

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "benchmarks.json"
PAGE = ROOT / "docs" / "benchmarks.md"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    usual = [name for name in WORKLOADS if name not in ON_REQUEST]
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=usual, metavar="WORKLOAD",
                        help=f"some of {', '.join(WORKLOADS)}; default: all but {', '.join(ON_REQUEST)}")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=5, help="runs of each contestant (5)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one run each, and no page")
    parser.add_argument("--page", action="store_true", help="only write the page from the results that there are")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the results, as JSON")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "bench", help="folder for data and runs")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-bench", help="the other frameworks' environment")
    return parser.parse_args(arguments)


def say(line: str) -> None:
    """Write a line of progress."""
    print(line, file=sys.stderr, flush=True)


def commit() -> str:
    """Return the commit of this tree, with + if it was changed."""
    try:
        head = subprocess.check_output(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, text=True).strip()
        changed = subprocess.check_output(["git", "status", "--porcelain", "-uno"], cwd=ROOT, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}{'+' if changed else ''}"


def measure(name: str, options: Options, repeats: int) -> Result:
    """Run a workload; a fault in its preparation is its only result."""
    began, where = time.perf_counter(), machine(commit())
    folder = options.work / "turns" / name
    try:
        ready = load_workload(name).prepare(name, options)
    except (RunError, OSError) as error:
        say(f"  cannot be prepared: {error}")
        return Result({"preparation": Entry("preparation", fault=str(error))}, machine=where)
    entries = alternate(ready.contestants, repeats, folder, say)
    facts = ready.facts | ({"peers": _versions(options)} if any(n.startswith("flower") for n in entries) else {})
    return Result(entries, facts, where, repeats, options.quick, time.perf_counter() - began)


def _versions(options: Options) -> str:
    return " and ".join(f"{name} {version}" for name, version in options.peers.versions.items()) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status: 1 if a contestant of ours or by hand failed."""
    chosen = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a contestant does not outlive this process
    results = {} if chosen.quick else load(chosen.results)
    chosen.work.mkdir(parents=True, exist_ok=True)
    faults = 0
    if not chosen.page:
        options = Options(chosen.work.resolve(), chosen.quick, ensure(chosen.peers.resolve(), say), say)
        for name in chosen.only:
            say(f"{name}, {time.strftime('%H:%M:%S')}")
            result = measure(name, options, 1 if chosen.quick else chosen.repeats)
            say(f"  {name} took {result.seconds:.0f} s")
            faults += sum(bool(e.fault) for key, e in result.entries.items() if not key.startswith(("pfl", "flower")))
            results[name] = result
            if not chosen.quick:
                save(chosen.results, results)
        if not faults:  # else the outputs of what failed are in it
            shutil.rmtree(chosen.work / "turns", ignore_errors=True)
    if chosen.quick and chosen.out == PAGE:
        say(f"sizes of --quick mean nothing: {PAGE.relative_to(ROOT)} was not written (--out FILE writes one)")
    else:
        chosen.out.write_text(page(results, {name: load_workload(name).about(name) for name in WORKLOADS}))
        say(f"page: {os.path.relpath(chosen.out)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
