"""``fedscene data``: the data stages and a look at what they made."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import Json, Overrides, Params, Presets
from flows.cli.output import console, print_json, user_errors

data_app = typer.Typer(help="Ingest images, partition them over clients, look at them.", no_args_is_help=True)

_PLAIN: dict[str, Any] = {"markup": False, "emoji": False}  # [red] or :x: in a name from outside is no markup
Root = Annotated[Path, typer.Option("--root", help="Folder of dataset/ and clients/.")]


def _settings(params: str | None, presets: list[str] | None, overrides: list[str] | None) -> Any:
    from flows.settings.files import load_settings

    return load_settings(Path(params) if params else None, presets or (), overrides or ())


@data_app.command("ingest")
def ingest(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    root: Root = Path("data"),
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Decoding processes; default: one for each core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read the source, check every file, write dataset/ (images.npy, samples, classes, manifest)."""
    with user_errors(as_json):
        from flows.cli.progress import counting
        from flows.run.data import ingest_stage
        from tasks.data.ingest.audit_report import labels_without_images
        from tasks.data.ingest.similar_labels import similar_names

        with counting(console(True), "ingesting") as progress:
            summary = ingest_stage(_settings(params, preset, set_), root, progress, workers)
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
        if empty := labels_without_images(summary["labels"]):
            out.print(f"warning: {empty}", **_PLAIN)
        for line in similar_names(summary["labels"], summary["sites"]):
            out.print(f"warning: {line}", **_PLAIN)
        if summary["groups_across_splits"]:
            leaks = summary["groups_across_splits"]
            out.print(f"warning: {leaks} groups of images that belong together lie in several of the given splits")
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
    """Say which client holds which training images; write clients/ with counts and images."""
    with user_errors(as_json):
        from flows.cli.show import show_differences
        from flows.run.data import partition_stage
        from tasks.data.partition.participation import absent_sites_line

        summary = partition_stage(_settings(params, preset, set_), root)
        if as_json:
            print_json(summary)
            return
        show_differences(summary, "client", console(False))
        absent = summary["sites_without_training_images"]
        everyone = len(summary["clients"]) + len(summary["dropped"]) + len(absent)
        for warning in filter(None, [absent_sites_line(absent, everyone), *summary["warnings"]]):
            console(False).print(f"warning: {warning}", **_PLAIN)
        files = f"partition: {root / 'clients'}, images: label_client.png, client_sizes.png, cooccurrence.png in it"
        console(False).print(files, **_PLAIN)


@data_app.command("show")
def show(
    root: Root = Path("data"),
    sheets: Annotated[Path | None, typer.Option("--sheets", help="Folder to write to; default: ROOT/sheets.")] = None,
    per_site: Annotated[int, typer.Option("--per-site", min=1, max=120, help="Images on a site's sheet.")] = 40,
    site: Annotated[list[str] | None, typer.Option("--site", help="Sheet of this site only; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the sheets with the desktop's viewer.")] = False,
    as_json: Json = False,
) -> None:
    """Print how images and labels fall across sites and clients; write a sheet of sample images for each site."""
    with user_errors(as_json):
        from flows.cli.show import look, open_files, print_look

        found = look(root, sheets or root / "sheets", per_site, site or ())
        if as_json:
            print_json(found)
        else:
            print_look(found, console(False))
        if open_:
            open_files(found, console(as_json))
