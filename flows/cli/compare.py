"""``fedscene compare``: finished runs side by side."""

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json
from flows.cli.output import note, print_json, say, user_errors


def compare(
    runs: Annotated[list[str], typer.Argument(help="Ids of finished runs, or paths of their folders.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for compare.md, compare.json and a plot.")] = None,
    to_mlflow: Annotated[bool, typer.Option("--mlflow", help="Log the comparison to MLflow.")] = False,
    as_json: Json = False,
) -> None:
    """Compare finished runs: settings that differ, metrics, the clients' mean, std and worst, bytes and seconds.

    Runs that differ in the seed alone are one row. All need the same labels and test images. Exit code 1 means that a
    run was left out; the reason is printed.
    """
    with user_errors(as_json), contextlib.ExitStack() as stack:
        from flows.compare.results import compare as compare_runs
        from flows.compare.runs import load_runs
        from flows.compare.write import log_comparison, tables, write_comparison
        from flows.engine.environment import runs_root
        from models.errors import UserError

        found, refused = load_runs(runs_root(), runs)
        comparison, tracking = compare_runs(found, refused), found[0].settings.tracking
        if to_mlflow and not tracking.enabled:
            raise UserError("the first run was made without MLflow", where="--mlflow", found="tracking.enabled false")
        values, files = comparison.as_dict(), list[Path]()
        if out is not None or to_mlflow:
            folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedscene-")))
            files = write_comparison(comparison, folder)
            values |= {"files": [str(path) for path in files]} if out is not None else {}
        if to_mlflow:
            values["mlflow_run_id"] = log_comparison(comparison, tracking, files)
        if as_json:
            print_json(values)
        else:
            from flows.cli.replicate_request import print_table

            for title, heads, rows in tables(comparison):
                print_table(title, heads, rows)
            for line in comparison.notes:
                say(f"note: {line}")
            if to_mlflow:
                say(f"MLflow run: {values['mlflow_run_id']}")
            if out is not None:
                say(f"files: {', '.join(str(path) for path in files)}")
        for name, why in refused.items():
            note(f"not compared: {name}: {why}")
        if refused:
            raise typer.Exit(1)
