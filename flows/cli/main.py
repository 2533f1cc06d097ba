"""The command line ``fedscene``. It imports fast: what a command needs is imported when the command runs."""

from pathlib import Path
from typing import Annotated

from flows.engine import environment

environment.prepare()

import typer  # noqa: E402 - the environment comes first

from flows.cli import check, versions  # noqa: E402, F401 - their commands join data_app
from flows.cli.compare import compare  # noqa: E402
from flows.cli.data import data_app  # noqa: E402
from flows.cli.fidelity import fidelity  # noqa: E402
from flows.cli.log_models import log_models  # noqa: E402
from flows.cli.options import Json, Overrides, Params, Presets, RunId, effective_settings  # noqa: E402
from flows.cli.output import console, note, print_json, say, user_errors  # noqa: E402
from flows.cli.pretrain import pretrain  # noqa: E402
from flows.cli.replicate import replicate  # noqa: E402
from flows.cli.stages import stage_app  # noqa: E402
from flows.cli.summary import show_scores, show_summary  # noqa: E402

app = typer.Typer(
    name="fedscene",
    help="Federated image classification: train a classifier across sites without moving their images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(stage_app, name="stage", hidden=True)
app.command()(pretrain)
app.command()(replicate)
app.command()(fidelity)
app.command()(compare)
app.command("log-models")(log_models)

VERSIONS = ("fedscene", "torch", "torchvision", "prefect", "dvc", "mlflow")


def show_versions(wanted: bool) -> None:
    """Print the versions of the main packages from their metadata; nothing heavy is imported."""
    if not wanted:
        return
    import platform
    from importlib.metadata import PackageNotFoundError, version

    for name in VERSIONS:
        try:
            print(name, version(name))
        except PackageNotFoundError:
            print(name, "not installed")
        if name == "fedscene":
            print("python", platform.python_version())
    raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=show_versions, is_eager=True, help="Print versions and exit.")
    ] = False,
) -> None:
    """Declare options common to all commands; the help text is the app's."""


@app.command()
def run(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    run_id: RunId = None,
    as_json: Json = False,
) -> None:
    """Train: prepare the data if needed, run the rounds, write the report. Needs no DVC repository.

    Repeat the command to resume after an interruption. Results: runs/<id>/ (or $FEDSCENE_RUNS/<id>/).
    """
    with user_errors(as_json):
        from flows.cli.progress import Live, counting
        from flows.federate import federate
        from flows.run.find import checked_id
        from flows.run.inputs import require_weights
        from flows.run.prepare_data import prepare_data

        settings = effective_settings(params, preset, set_)
        run_id = None if run_id is None else checked_id(run_id)
        require_weights(settings)  # fail before any image is read
        with counting(console(as_json), "preparing data") as progress:
            data = prepare_data(settings, progress, note)
        with Live(console(True), settings.federation.rounds) as live:
            summary = federate(settings, data, run_id=run_id, progress=live)
        show_summary(summary, as_json)


@app.command()
def pipeline(params: Params = None, preset: Presets = None, set_: Overrides = None, as_json: Json = False) -> None:
    """Run the whole pipeline under DVC, as the schedule does: ingest, version, partition, federate, report.

    Changed settings are written to params.yaml first, as `dvc exp run -S` does, since dvc.lock must record what ran;
    they are restored if the run fails.
    """
    with user_errors(as_json):
        from tasks.versioning.repository import check_repository

        check_repository(Path.cwd())
        from flows.engine.prefect_server import import_prefect

        import_prefect("pipeline")
        from flows.cli.progress import Live
        from flows.pipeline import run_pipeline, settings_in_params

        with (
            settings_in_params(Path.cwd(), lambda: effective_settings(params, preset, set_), note) as settings,
            Live(console(True), settings.federation.rounds) as live,
        ):
            summary = run_pipeline(Path.cwd(), settings, live)
        show_summary(summary, as_json)


@app.command()
def report(
    run_id: Annotated[str | None, typer.Argument(help="The run; default: the one used last.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; default: the run's report/.")] = None,
    as_json: Json = False,
) -> None:
    """Write a run's report: tables per round, class and site, and plots."""
    with user_errors(as_json):
        from flows.engine.environment import runs_root
        from flows.run.find import find_run
        from flows.stages import write_report

        root = find_run(runs_root(), run_id)
        folder = out or root / "report"
        records, target = write_report(root, folder), folder / "report.md"
        if as_json:
            print_json({"run_id": root.name, "report": str(target), "metrics": records[-1].metrics})
            return
        from tasks.report.round_table import round_table

        shown = console(False)
        shown.print(round_table(records, shown.width))
        show_scores(records, shown)
        say(f"report: {target}")


@app.command()
def settings(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    explain: Annotated[bool, typer.Option("--explain", help="Describe every key, as Markdown.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file; its comments are kept.")] = None,
    as_json: Json = False,
) -> None:
    """Print the effective settings as YAML, or write them to a file such as params.yaml.

    Use --out, not the shell's >, to write to params.yaml: the shell empties the file before it is read.
    """
    with user_errors(as_json):
        if explain:
            from flows.settings.explain import explain as explain_settings
            from flows.settings.explain import rows

            if as_json:
                names = ("key", "type", "default", "meaning")
                print_json({"settings": [dict(zip(names, row, strict=True)) for row in rows()]})
            else:
                print(explain_settings(), end="")
            return

        from flows.settings.schema import as_values

        effective = effective_settings(params, preset, set_)
        values = as_values(effective)
        if out:
            from flows.settings.params_file import write_settings

            for line in write_settings(out, effective, complete=True):
                note(f"{out}: {line}")
        if as_json:
            print_json(values)
        elif out:
            print(f"settings: {out}")
        else:
            from tasks.core.yaml_text import dump_yaml

            print(dump_yaml(values), end="")


@app.command()
def methods(as_json: Json = False) -> None:
    """List methods, objectives, networks, aggregators, update transforms and presets with their references."""
    with user_errors(as_json):
        from flows.methods import METHODS, load_method
        from flows.settings.files import about_preset, presets
        from models.registry import NETWORKS
        from tasks.client.objectives import OBJECTIVES, load_objective
        from tasks.core.update_transforms import TRANSFORMS, load_transform
        from tasks.server.aggregators import AGGREGATORS, load_aggregator

        groups = {
            "methods": {name: load_method(name).DESCRIPTION for name in METHODS},
            "objectives": {name: load_objective(name).DESCRIPTION for name in OBJECTIVES},
            "models": {name: network.description for name, network in NETWORKS.items()},
            "aggregators": {name: load_aggregator(name).DESCRIPTION for name in AGGREGATORS},
            "update transforms": {name: load_transform(name).DESCRIPTION for name in TRANSFORMS},
            "presets": {name: about_preset(name) for name in presets()},
        }
        if as_json:
            print_json(groups)
            return
        from rich.table import Table

        for title, rows in groups.items():
            table = Table(title=title, title_justify="left", show_header=False, box=None)
            for name, text in rows.items():
                table.add_row(name, text)
            console(False).print(table)


def main() -> None:
    """Run ``fedscene``."""
    app()


if __name__ == "__main__":
    main()
