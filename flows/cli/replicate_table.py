"""``fedscene replicate`` for a paper's table: rows with the same images, at equal rounds and equal local epochs."""

from dataclasses import replace
from typing import TYPE_CHECKING

from flows.cli.output import console, say
from flows.cli.replicate_request import Request, print_table

if TYPE_CHECKING:
    from flows.papers.replicate.results import TableReport
    from flows.papers.replicate.run import RunState


def replicate_table(request: Request) -> None:
    """Run the missing rows of a table, or show what would run; write it as Markdown, JSON and plots."""
    from flows.cli.replicate_progress import Rows
    from flows.papers.replicate.run import make_plan, replicate, run_states
    from flows.papers.replicate.tables import load_table

    table = load_table(request.table)
    plan = make_plan(table, request.scale, request.data, request.rows, request.overrides, request.seeds)
    if request.dry_run:
        states = run_states(plan)
        request.print_states(states, ("row", "seed", "rounds done", "action"), list(map(_state_cells, states)))
        return
    plan = replace(plan, selected=frozenset()) if request.show else plan
    folder = request.folder(table.name)
    with Rows(console(True)) as progress:
        report = replicate(plan, folder, progress)
    failed = [row.name for row in report.rows if row.failed]
    files = f"table: {folder / 'table.md'}, all values: {folder / 'table.json'}"
    request.end(report, failed, lambda: _show(report), files)


def _state_cells(state: "RunState") -> list[str]:
    done = state.rounds == state.of
    action = "none, finished" if done else "run" if state.selected else "none, not selected"
    action = f"fails: {state.failed.splitlines()[0]}" if state.failed else action
    return [state.row, str(state.seed), f"{state.rounds}/{state.of}", action]


def _show(report: "TableReport") -> None:
    """Print the four metrics at equal rounds and at equal local epochs, and the paper's."""
    from flows.papers.replicate.write import main_table

    print_table(f"{report.title}, scale {report.scale}", *main_table(report), justify="right")
    say(report.scale_note)
