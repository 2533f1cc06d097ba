"""``fedscene data``: the data stages and an inspection of their outputs."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Overrides, Params, Presets, effective_settings
from flows.cli.output import console, print_json, say, user_errors

data_app = typer.Typer(help="Ingest images, partition them over clients, inspect them.", no_args_is_help=True)

Root = Annotated[Path, typer.Option("--root", help="Parent folder of dataset/ and clients/.")]


@data_app.command("ingest")
def ingest(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    root: Root = Path("data"),
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Decoding processes; default: one per core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read the source, check every file, write dataset/ (images.npy, samples, classes, manifest)."""
    with user_errors(as_json):
        from flows.cli.progress import counting
        from flows.run.prepare_data import ingest_stage
        from tasks.core.names import visible_name
        from tasks.data.ingest.audit_report import labels_without_images
        from tasks.data.ingest.similar_labels import similar_names

        with counting(console(True), "ingesting") as progress:
            summary = ingest_stage(effective_settings(params, preset, set_), root, progress, workers)
        if as_json:
            print_json(summary)
            return
        sites = len(summary["sites"])
        splits = ", ".join(f"{count} {split}" for split, count in summary["splits"].items())
        say(f"{summary['images']} images of {sites} {'site' if sites == 1 else 'sites'}: {splits}")
        if summary["unlabelled"]:
            by_site = ", ".join(f"{count} of {visible_name(s)}" for s, count in summary["unlabelled_sites"].items())
            say(f"{summary['unlabelled']} of them are unlabelled, all in train: {by_site}")
        if summary["kind"] == "single_label":
            say("one label per image: single-label data (ingest.kind)")
        say("input files by reason (explained in docs/your-images.md):")
        for reason, count in summary["reasons"].items():
            say(f"  {count:6d}  {reason}")
        for alias, count in summary["aliases"].items():
            say(f"  {count:6d}  labels read by alias: {alias}")
        if empty := labels_without_images(summary["labels"]):
            say(f"warning: {empty}")
        for line in similar_names(summary["labels"], summary["sites"]):
            say(f"warning: {line}")
        if summary["groups_across_splits"]:
            leaks = summary["groups_across_splits"]
            say(f"warning: {leaks} groups of related images are in several of the given splits")
        files = f"data set: {root / 'dataset'}, every input file: {root / 'dataset' / 'manifest.parquet'}"
        say(files)


@data_app.command("partition")
def partition(
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    root: Root = Path("data"),
    as_json: Json = False,
) -> None:
    """Assign training images to clients; write clients/ with counts and plots."""
    with user_errors(as_json):
        from flows.cli.show import show_differences
        from flows.run.prepare_data import partition_stage
        from tasks.data.partition.participation import absent_sites_line

        summary = partition_stage(effective_settings(params, preset, set_), root)
        if as_json:
            print_json(summary)
            return
        show_differences(summary, "client", console(False))
        absent = summary["sites_without_training_images"]
        everyone = len(summary["clients"]) + len(summary["dropped"]) + len(absent)
        for warning in filter(None, [absent_sites_line(absent, everyone), *summary["warnings"]]):
            say(f"warning: {warning}")
        files = f"partition: {root / 'clients'}, plots in it: label_client.png, client_sizes.png, cooccurrence.png"
        say(files)


@data_app.command("show")
def show(
    root: Root = Path("data"),
    sheets: Annotated[Path | None, typer.Option("--sheets", help="Folder to write to; default: ROOT/sheets.")] = None,
    per_site: Annotated[int, typer.Option("--per-site", min=1, max=120, help="Images per contact sheet.")] = 40,
    site: Annotated[list[str] | None, typer.Option("--site", help="Only this site's sheet; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the sheets with the desktop's image viewer.")] = False,
    as_json: Json = False,
) -> None:
    """Print the distribution of images and labels over sites and clients; write a contact sheet per site."""
    with user_errors(as_json):
        from flows.cli.show import inspect_data, open_files, print_inspection

        found = inspect_data(root, sheets or root / "sheets", per_site, site or ())
        if as_json:
            print_json(found)
        else:
            print_inspection(found, console(False))
        if open_:
            open_files(found, console(as_json))
