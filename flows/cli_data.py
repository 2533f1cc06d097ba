"""``fedscene data``: the data stages and a look at what they made."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.output import Json, Overrides, Params, Presets, console, print_json, user_errors

data_app = typer.Typer(help="Ingest images, partition them over clients, look at them.", no_args_is_help=True)

_PLAIN: dict[str, Any] = {"markup": False, "emoji": False}  # [red] or :x: in a name from outside is no markup
Root = Annotated[Path, typer.Option("--root", help="Folder of dataset/ and clients/.")]


def _settings(params: str | None, presets: list[str] | None, overrides: list[str] | None) -> Any:
    from flows.settings import load_settings

    return load_settings(Path(params) if params else None, presets or (), overrides or ())


@data_app.command("ingest")
def ingest(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    root: Root = Path("data"),
    as_json: Json = False,
) -> None:
    """Read the source, check every file, write dataset/ (images.npy, samples, classes, manifest)."""
    with user_errors(as_json):
        from flows.data import ingest_stage
        from flows.progress import counting

        with counting(console(True), "ingesting") as progress:
            summary = ingest_stage(_settings(params, preset, set_), root, progress)
        if as_json:
            print_json(summary)
            return
        out = console(False)
        sites = len(summary["sites"])
        splits = ", ".join(f"{count} {split}" for split, count in summary["splits"].items())
        out.print(f"{summary['images']} images of {sites} {'site' if sites == 1 else 'sites'}: {splits}")
        out.print("input files by reason (docs/your-images.md says what they mean):")
        for reason, count in summary["reasons"].items():
            out.print(f"  {count:6d}  {reason}")
        for alias, count in summary["aliases"].items():
            out.print(f"  {count:6d}  labels read by alias: {alias}", **_PLAIN)
        files = f"data set: {root / 'dataset'}, every input file: {root / 'dataset' / 'manifest.parquet'}"
        out.print(files, **_PLAIN)


@data_app.command("partition")
def partition(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    root: Root = Path("data"),
    as_json: Json = False,
) -> None:
    """Say which client holds which training images; write clients/ with counts and a heat-map."""
    with user_errors(as_json):
        from flows.data import partition_stage

        summary = partition_stage(_settings(params, preset, set_), root)
        if as_json:
            print_json(summary)
            return
        _show_clients(summary)
        files = f"partition: {root / 'clients'}, heat-map: {root / 'clients' / 'label_client.png'}"
        console(False).print(files, **_PLAIN)


@data_app.command("show")
def show(root: Root = Path("data"), as_json: Json = False) -> None:
    """Print how images and labels fall across clients."""
    with user_errors(as_json):
        from tasks.data.clients import load_clients

        summary = load_clients(root / "clients").summary
        if as_json:
            print_json(summary)
            return
        _show_clients(summary)
        console(False).print(f"heat-map: {root / 'clients' / 'label_client.png'}", **_PLAIN)


def _show_clients(summary: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{summary['scheme']}: images with each label, by client", style="table.title")
    table = Table(title=title, title_justify="left")
    table.add_column("label")
    for client, row in summary["clients"].items():
        table.add_column(Text(f"{client} ({row['images']})"), justify="right")
    labels = list(next(iter(summary["clients"].values()))["labels"])
    for label in labels:
        table.add_row(Text(label), *(str(row["labels"][label]) for row in summary["clients"].values()))
    console(False).print(table)
    console(False).print(f"mean Jensen-Shannon distance to the whole: {summary['mean_js_distance']:.3f}")
