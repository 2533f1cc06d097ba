"""``fedscene replicate``: run the rows of a paper's table and compare them with the printed figures."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, Overrides, parse_names, parse_seeds
from flows.cli.output import console, note, print_json, say, user_errors
from flows.cli.replicate_benchmark import Asked, replicate_benchmark
from flows.cli.replicate_list import list_tables

if TYPE_CHECKING:
    from flows.papers.replicate.results import TableReport
    from flows.papers.replicate.run import RunState


def replicate(
    table: Annotated[str | None, typer.Argument(help="A shipped table, or a YAML file.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tables, or the rows of TABLE; run nothing.")] = False,
    scale: Annotated[str, typer.Option("--scale", help="small: minutes on 2 cores; full: the paper's.")] = "small",
    rows: Annotated[str | None, typer.Option("--rows", help="Run only these rows: A,B; others are shown.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Seeds of the training: 1,2,3.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Parent of the image folders that tables need.")] = None,
    set_: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; default: runs/tables/TABLE-SCALE.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run; run nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; write the table of what is finished.")] = False,
    as_json: Json = False,
) -> None:
    """Run the missing rows of a paper's table; write it as Markdown, JSON and plots, next to the printed figures.

    Repeat the command to continue. Tables share rows: a run that another table made is not repeated. Exit code 1 means
    that a row failed; the table gives the reason.
    """
    with user_errors(as_json):
        from flows.papers.benchmark.schema import is_benchmark
        from flows.papers.replicate.tables import load_table
        from models.errors import UserError

        if list_:
            list_tables(None if table is None else table, as_json)
            return
        if table is None:
            raise UserError("no table given", where="fedscene replicate TABLE", hint="fedscene replicate --list")
        if dry_run and show:
            raise UserError("--dry-run writes nothing and --show writes the table", where="fedscene replicate")
        if is_benchmark(table):
            asked = Asked(table, scale, data, parse_names(rows), set_ or (), parse_seeds(seeds), out)
            replicate_benchmark(asked, dry_run, show, as_json)
            return
        from flows.cli.replicate_progress import Rows
        from flows.engine.environment import runs_root
        from flows.papers.replicate.run import make_plan, run_states
        from flows.papers.replicate.run import replicate as run_rows
        from flows.run.folders import table_folder

        loaded = load_table(table)
        plan = make_plan(loaded, scale, data, parse_names(rows), set_ or (), parse_seeds(seeds))
        if dry_run:
            _show_states(run_states(plan), as_json)
            return
        plan = replace(plan, selected=frozenset()) if show else plan
        folder = out or table_folder(runs_root() / "tables", table, loaded.name, scale)
        with Rows(console(True)) as progress:
            report = run_rows(plan, folder, progress)
        failed = [row.name for row in report.rows if row.failed]
        if as_json:
            print_json(report.as_dict())
        else:
            _show(report)
            say(f"table: {folder / 'table.md'}, all values: {folder / 'table.json'}")
        if failed:
            note(f"failed rows (the table gives the reasons): {', '.join(failed)}")
            raise typer.Exit(1)


def _show_states(states: "list[RunState]", as_json: bool) -> None:
    if as_json:
        print_json({"runs": [state.as_dict() for state in states]})
        return
    from rich.table import Table as Shown

    shown = Shown(title="What would run", title_justify="left")
    for head in ("row", "seed", "rounds done", "action"):
        shown.add_column(head)
    for state in states:
        done = state.rounds == state.of
        action = "none, finished" if done else "run" if state.selected else "none, not selected"
        action = f"fails: {state.failed.splitlines()[0]}" if state.failed else action
        shown.add_row(state.row, str(state.seed), f"{state.rounds}/{state.of}", action)
    console(False).print(shown)


def _show(report: "TableReport") -> None:
    """Print the four metrics at equal rounds and at equal local epochs, and the paper's."""
    from rich.table import Table as Shown
    from rich.text import Text

    from flows.papers.replicate.write import main_table

    heads, rows = main_table(report)
    shown = Shown(title=Text(f"{report.title}, scale {report.scale}"), title_justify="left")
    for number, head in enumerate(heads):
        shown.add_column(Text(head), justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        shown.add_row(*map(Text, row))
    console(False).print(shown)
    say(report.scale_note)
