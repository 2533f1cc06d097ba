"""The page: targets, and a table for each workload, from the results."""

from collections.abc import Mapping, Sequence

from benchmarks.harness.figures import median, ratio, spread, unequal
from benchmarks.harness.results import Result
from benchmarks.harness.targets import TARGETS, Results, Target
from benchmarks.workloads import About

BUSY = 0.5  # a load average before the start above which the machine was not idle

INTRODUCTION = """# Benchmarks

`make bench` wrote this page. It runs each workload's contestants in turns, several times, and shows medians, with the
smallest and largest value in brackets. CPU-s are user and system seconds of the process and all that it starts; a round
is the mean over the rounds after a warm-up. All contestants use one torch thread per process, the same torch, and the
same code of the network. The other frameworks have an environment of their own (`.venv-bench`) and the settings that
their documentation suggests. FedScene runs as the command `fedscene run`, with tracking off.

```
make bench                                           # all workloads, within an hour on two cores
make bench ARGS="--only pfl-mini --repeats 3"        # one of them; the others' results stay
make bench ARGS="--quick"                            # tiny sizes, to see that everything runs; writes no page
```
"""


def page(results: Results, abouts: Mapping[str, About]) -> str:
    """Return the page as Markdown.

    Args:
        results: Workload -> result; those that were not run are left out.
        abouts: Workload -> what to say of it, in the order of the page.
    """
    parts = [INTRODUCTION, "## Targets\n", target_table(results), *profiles(results)]
    for name, about in abouts.items():
        if name in results:
            parts.append(section(name, about, results[name]))
    return "\n".join(parts).rstrip() + "\n"


def target_table(results: Results) -> str:
    """Return the table of the targets."""
    lines = ["| what | target | measured | |", "|---|---|---|---|"]
    return "\n".join([*lines, *(target_row(target, target.read(results)) for target in TARGETS)]) + "\n"


def target_row(target: Target, value: float | None) -> str:
    """Return a target's row: met, not met or not measured."""
    limit = f"{'at least' if target.at_least else 'at most'} {target.limit:g}{target.unit}"
    if value is None:
        verdict = f"not measured{f': {target.how}' if target.how else ''}"
        return f"| {target.what} | {limit} | | {verdict} |"
    verdict = f"**{'met' if target.met(value) else 'not met'}**"
    remark = f"; {target.remark}" if target.remark else ""
    return f"| {target.what} | {limit} | {number(value)}{target.unit} | {verdict}{remark} |"


def profiles(results: Results) -> list[str]:
    """Return where the time goes for the targets that are not met, under a heading."""
    lines = [
        f"* **{target.what}.** {target.profile}"
        for target in TARGETS
        if target.profile and (value := target.read(results)) is not None and not target.met(value)
    ]
    return ["### Where the time goes that is over a target\n", "\n".join(lines), ""] if lines else []


def section(name: str, about: About, result: Result) -> str:
    """Return a workload's heading, text, table and remarks."""
    facts = ", ".join(f"{key.replace('_', ' ')} {show(value)}" for key, value in result.facts.items())
    lines = [f"## {about.title}", "", about.text, "", *table(about, result), ""]
    if remarks := [*check(about, result), *_circumstances(result)]:
        lines += [*(f"* {remark}" for remark in remarks), ""]
    where = f"{facts}; {result.repeats} runs of each in turns, {result.seconds / 60:.0f} min; {machine_text(result)}"
    return "\n".join([*lines, f"`{name}`: {where}.", ""])


def table(about: About, result: Result) -> list[str]:
    """Return the lines of a workload's table: medians, smallest and largest values, ratios to the reference."""
    columns = [key for key in about.figures if any(median(e.runs, key) is not None for e in result.entries.values())]
    headings = []
    for key in columns:
        headings += [about.figures[key], *(["ratio"] if key in about.ratios else [])]
    lines = [f"| | {' | '.join(headings)} |", f"|---|{'---|' * len(headings)}"]
    for entry in result.entries.values():
        if not entry.runs:
            lines.append(f"| {entry.title} | {_escaped(entry.fault)} |{' |' * (len(headings) - 1)}")
            continue
        cells = []
        for key in columns:
            cells.append(cell(entry.runs, key))
            if key in about.ratios:
                found = ratio(entry.runs, result.runs(about.reference), key)
                cells.append("" if found is None else f"{found:.2f}")
        lines.append(f"| {entry.title} | {' | '.join(cells)} |")
    return lines


def cell(runs: Sequence[Mapping[str, float]], figure: str) -> str:
    """Return a median with the smallest and largest value, where they differ from it."""
    middle, ends = median(list(map(dict, runs)), figure), spread(list(map(dict, runs)), figure)
    if middle is None or ends is None:
        return ""
    low, high = map(number, ends)
    return number(middle) if low == high else f"{number(middle)} ({low} to {high})"


def check(about: About, result: Result) -> list[str]:
    """Return whether all contestants computed the same, in words."""
    if not about.equal:
        return []
    runs = {name: [run for run in entry.runs if about.equal in run] for name, entry in result.entries.items()}
    compared = [name for name, own in runs.items() if own]
    if about.reference not in compared or len(compared) < 2:
        return [f"The {about.equal} was not compared: the hand-written loop or all others are missing."]
    wrong = unequal(runs, about.reference, about.equal, about.tolerance)
    if not wrong:
        return [f"The {about.equal} of all contestants is the same within {about.tolerance:.1%}."]
    named = ", ".join(f"{result.entries[name].title} by {difference:.1%}" for name, difference in wrong.items())
    return [f"**The {about.equal} differs** by more than {about.tolerance:.1%}: {named}."]


def _circumstances(result: Result) -> list[str]:
    found = [
        f"{entry.title} failed after {len(entry.runs)} runs: {entry.fault}"
        for entry in result.entries.values()
        if entry.fault and entry.runs
    ]
    if result.quick:
        found.append("**Tiny sizes (`--quick`)**: the figures mean nothing.")
    if result.machine.get("load_before", 0) > BUSY:
        found.append(f"**The machine was busy**: load average {result.machine['load_before']} before the start.")
    return found


def machine_text(result: Result) -> str:
    """Return where and when it was measured."""
    m = result.machine
    hardware = f"{m['processor']}, {m['cores']} cores, {m['memory_gb']} GB"
    return f"{hardware}, torch {m['torch']}, {m['date']}, commit {m['commit']}"


def number(value: float) -> str:
    """Return a number with three digits, or all before the point."""
    if value == 0:
        return "0"
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{float(text):.10f}".rstrip("0").rstrip(".") if "e" in text else text


def show(value: object) -> str:
    """Return a fact."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
