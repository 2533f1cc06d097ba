"""``fedscene replicate`` for benchmarks: published cells with bands, each row with a protocol of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flows.cli.output import console, note, print_json, say

if TYPE_CHECKING:
    from flows.papers.benchmark.results import BenchmarkReport
    from flows.papers.benchmark.run import RowState


@dataclass(frozen=True)
class Asked:
    """The options of a call; as in ``flows.cli.replicate``."""

    table: str
    scale: str
    data: Path | None
    rows: Sequence[str]
    overrides: Sequence[str]
    seeds: Sequence[int] | None
    out: Path | None


def replicate_benchmark(asked: Asked, dry_run: bool, show: bool, as_json: bool) -> None:
    """Run the missing rows of a benchmark, or show what would run; write its page and its record."""
    from flows.cli.replicate_progress import Rows
    from flows.engine.environment import runs_root
    from flows.papers.benchmark.plan import make_benchmark_plan, without_runs
    from flows.papers.benchmark.run import replicate_cells, row_states
    from flows.papers.benchmark.schema import load_benchmark
    from flows.run.folders import table_folder

    benchmark = load_benchmark(asked.table)
    plan = make_benchmark_plan(benchmark, asked.scale, asked.data, asked.rows, asked.overrides, asked.seeds)
    if dry_run:
        states = row_states(plan)
        _show_states(states, as_json)
        if any(state.problem and state.selected for state in states):
            raise typer.Exit(1)
        return
    plan = without_runs(plan) if show else plan
    folder = asked.out or table_folder(runs_root() / "tables", asked.table, benchmark.name, asked.scale)
    with Rows(console(True)) as progress:
        report = replicate_cells(plan, folder, progress)
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report)
        say(f"page: {folder / f'{benchmark.name}.md'}, record: {folder / f'{benchmark.name}.json'}")
    failed = [name for name, row in report.rows.items() if row.failed]
    if failed:
        note(f"failed rows (the page gives the reasons): {', '.join(failed)}")
        raise typer.Exit(1)


def _show_states(states: "list[RowState]", as_json: bool) -> None:
    if as_json:
        print_json({"runs": [state.as_dict() for state in states]})
        return
    from rich.table import Table as Shown

    shown = Shown(title="What would run", title_justify="left")
    for head in ("row", "seeds", "rounds done", "training passes left", "action"):
        shown.add_column(head)
    for row in dict.fromkeys(state.row for state in states):
        shown.add_row(*_row([state for state in states if state.row == row]))
    console(False).print(shown)
    left = sum(state.passes for state in states if state.selected and not state.problem)
    say(f"in all about {left / 1e6:.1f} million passes over a training image; 2,000 to 5,000 a second on a CPU core")
    problems = dict.fromkeys(state.problem for state in states if state.problem and state.selected)
    for problem in problems:
        note(problem)


def _row(states: "list[RowState]") -> list[str]:
    """Return the cells of a row's runs in one line."""
    passes, of = sum(state.passes for state in states), states[0].of
    done = all(of > 0 and state.rounds >= of for state in states)
    action = "none, finished" if done else "run" if states[0].selected else "none, not selected"
    action = next((state.problem.splitlines()[0] for state in states if state.problem), action)
    if states[0].seed is None:
        return [states[0].row, "", "", "", action]
    seeds, rounds = (", ".join(map(str, values)) for values in zip(*((s.seed, s.rounds) for s in states), strict=True))
    return [states[0].row, seeds, f"{rounds} of {of}", f"{passes / 1e6:.2f} M", action]


def _show(report: "BenchmarkReport") -> None:
    """Print each row's published values, band, figure and verdict."""
    from rich.table import Table as Shown
    from rich.text import Text

    from flows.papers.benchmark.page import HEADS, row_cells

    shown = Shown(title=Text(f"{report.benchmark.title}, scale {report.scale}"), title_justify="left")
    for head in HEADS:
        shown.add_column(Text(head), no_wrap=head == HEADS[0])
    for name in report.rows:
        shown.add_row(*map(Text, row_cells(report, name)))
    console(False).print(shown)
