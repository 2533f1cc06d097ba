"""``fedscene replicate`` for benchmarks: published cells with bands, each row with a protocol of its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from flows.cli.output import console, note, say
from flows.cli.replicate_request import Request, print_table

if TYPE_CHECKING:
    from flows.papers.benchmark.results import BenchmarkReport
    from flows.papers.benchmark.run import RowState


def replicate_benchmark(request: Request) -> None:
    """Run the missing rows of a benchmark, or show what would run; write its page and its record."""
    from flows.cli.replicate_progress import Rows
    from flows.papers.benchmark.plan import make_benchmark_plan, without_runs
    from flows.papers.benchmark.run import replicate_cells, row_states
    from flows.papers.benchmark.schema import load_benchmark

    benchmark = load_benchmark(request.table)
    plan = make_benchmark_plan(benchmark, request.scale, request.data, request.rows, request.overrides, request.seeds)
    if request.dry_run:
        _show_states(request, row_states(plan))
        return
    plan = without_runs(plan) if request.show else plan
    folder = request.folder(benchmark.name)
    with Rows(console(True)) as progress:
        report = replicate_cells(plan, folder, progress)
    failed = [name for name, row in report.rows.items() if row.failed]
    files = f"page: {folder / f'{benchmark.name}.md'}, record: {folder / f'{benchmark.name}.json'}"
    request.end(report, failed, lambda: _show(report), files)


def _show_states(request: Request, states: "Sequence[RowState]") -> None:
    """Print how much of each row is done, how much work is left, and what keeps rows from running (exit code 1)."""
    rows = [_row([state for state in states if state.row == row]) for row in dict.fromkeys(s.row for s in states)]
    request.print_states(states, ("row", "seeds", "rounds done", "training passes left", "action"), rows)
    problems = dict.fromkeys(state.problem for state in states if state.problem and state.selected)
    if not request.as_json:
        left = sum(state.passes for state in states if state.selected and not state.problem)
        say(
            f"in all about {left / 1e6:.1f} million passes over a training image; 2,000 to 5,000 a second on a CPU core"
        )
        for problem in problems:
            note(problem)
    if problems:
        raise typer.Exit(1)


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
    from flows.papers.benchmark.page import HEADS, row_cells

    rows = [row_cells(report, name) for name in report.rows]
    print_table(f"{report.benchmark.title}, scale {report.scale}", HEADS, rows)
