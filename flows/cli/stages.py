"""``fedscene stage``: the stages of ``dvc.yaml`` that train and report, on ``params.yaml`` and ``data/`` here."""

import typer

from flows.cli.output import console, say, user_errors

stage_app = typer.Typer(help="The stages of dvc.yaml, as `dvc repro` calls them.", no_args_is_help=True)


@stage_app.command()
def federate() -> None:
    """Train the rounds that params.yaml asks for on data/; write data/federation."""
    from flows.cli.progress import Live
    from flows.settings.files import load_settings
    from flows.stages import federate_stage

    with user_errors():
        settings = load_settings()
        with Live(console(True), settings.federation.rounds) as live:
            summary = federate_stage(settings, live)
        say(f"digest {summary.digest}\nresults: {summary.report}")


@stage_app.command()
def report() -> None:
    """Write the report of the run that data/federation came from to data/report."""
    from flows.settings.files import load_settings
    from flows.stages import report_stage

    with user_errors():
        report_stage(load_settings())
