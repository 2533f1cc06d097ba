"""``fedscene replicate``: run the rows of a paper's table and compare them with the printed figures."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Overrides, parse_names, parse_seeds
from flows.cli.output import user_errors
from flows.cli.replicate_benchmark import replicate_benchmark
from flows.cli.replicate_list import list_tables
from flows.cli.replicate_request import Request
from flows.cli.replicate_table import replicate_table


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
    that a row failed; the page gives the reason.
    """
    with user_errors(as_json):
        from flows.papers.benchmark.schema import is_benchmark
        from models.errors import UserError

        if list_:
            list_tables(table, as_json)
            return
        if table is None:
            raise UserError("no table given", where="fedscene replicate TABLE", hint="fedscene replicate --list")
        if dry_run and show:
            raise UserError("--dry-run writes nothing and --show writes the table", where="fedscene replicate")
        options = parse_names(rows), set_ or (), parse_seeds(seeds), out, dry_run, show, as_json
        request = Request(table, scale, data, *options)
        if is_benchmark(table):
            replicate_benchmark(request)
        else:
            replicate_table(request)
