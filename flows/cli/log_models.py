"""``fedscene log-models``: the models of single sites of a finished run as MLflow models."""

from typing import Annotated, Literal

import typer

from flows.cli.options import Json
from flows.cli.output import console, note, print_json, say, user_errors


def log_models(
    run: Annotated[str | None, typer.Argument(help="The run; default: the one used last.")] = None,
    sites: Annotated[
        list[str] | None, typer.Option("--sites", help="Sites whose models are logged: A,B or all; may be repeated.")
    ] = None,
    round_: Annotated[
        Literal["last", "best"],
        typer.Option("--round", help="Models of the last round, or of the best (with tracking.site_models=best)."),
    ] = "last",
    as_json: Json = False,
) -> None:
    """Log the model of each site of a finished run to MLflow, where sites have models of their own.

    A model that MLflow has already is not logged again. Exit code 1 means that a site has no model.
    """
    with user_errors(as_json):
        from flows.cli.progress import counting
        from flows.engine.environment import runs_root
        from flows.run.find import find_run
        from flows.run.site_models import log_models as log_site_models
        from flows.run.site_models import missing_line

        root = find_run(runs_root(), run)
        with counting(console(True), "logging models") as progress:
            done: list[str] = []

            def logged(site: str, total: int) -> None:
                done.append(site)
                progress(len(done), total)

            found = log_site_models(root, sites or (), round_, logged)
        if as_json:
            print_json(found.as_dict())
        else:
            say(f"models of round {found.round} in MLflow run {found.mlflow_run_id}:")
            for site, uri in found.models.items():
                say(f"  {site}: {uri}")
        if found.missing:
            note(f"no model: {missing_line(found.missing)}")
            raise typer.Exit(1)
