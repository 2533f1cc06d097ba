"""Run contestants in turns: whatever else the machine does in an hour then meets all of them alike."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, RunError, run_once
from benchmarks.harness.results import Entry

LIMIT_S = 1800.0  # of one run
Runner = Callable[[Contestant, Path, float], Metrics]


def turns(count: int, repeats: int) -> list[int]:
    """Return the positions of the contestants in the order in which they run; each turn begins with another one."""
    return [(turn + place) % count for turn in range(repeats) for place in range(count)]


def alternate(
    contestants: Sequence[Contestant],
    repeats: int,
    folder: Path,
    say: Callable[[str], None],
    run: Runner = run_once,
) -> dict[str, Entry]:
    """Run every contestant ``repeats`` times, in turns.

    One that fails is not run again; the reason is its result.

    Args:
        contestants: What to run.
        repeats: How often.
        folder: Each run gets a new folder in it, which is removed after a success.
        say: Called with a line for each run.
        run: How a contestant is run.
    """
    entries = {each.name: Entry(each.title, fault=each.fault) for each in contestants}
    for number, position in enumerate(turns(len(contestants), repeats)):
        contestant = contestants[position]
        entry = entries[contestant.name]
        if entry.fault or (contestant.single and entry.runs):
            continue
        place = folder / f"{number:03d}-{contestant.name}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        began = time.perf_counter()
        try:
            figures = run(contestant, place, LIMIT_S)
        except (RunError, OSError) as error:
            entry.fault = str(error)
            say(f"  {contestant.name}: failed: {error} (its output: {place})")
            continue
        entry.runs.append(figures)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        say(f"  {contestant.name} {len(entry.runs)}/{repeats}: {shown} ({time.perf_counter() - began:.0f} s)")
        shutil.rmtree(place)
    return entries
