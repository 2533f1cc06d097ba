"""``fedscene data check``: report the content and the problems of a folder or file before an ingest."""

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.data import data_app
from flows.cli.options import Json, Overrides, Params, Presets
from flows.cli.output import console, print_json, say, user_errors
from models.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from tasks.data.ingest.audit import Audit
    from tasks.data.ingest.audit_report import ReportTable
    from tasks.data.ingest.settings import IngestSettings

_MAX_ROWS = 15  # of a table in the terminal; audit.md has more
_FORMATS_WITH_SETTINGS = {"voc", "coco", "yolo", "table", "flair", "folder"}  # settings of one imply the format
_FILE_FIELDS = ("path", "status", "reason", "labels", "width", "height")


@data_app.command("check")
def check(
    path: Annotated[Path, typer.Argument(help="Folder of images, or the COCO JSON or table that lists them.")],
    format_: Annotated[str | None, typer.Option("--format", help="Format; default: guessed and reported.")] = None,
    classes: Annotated[
        Path | None, typer.Option("--classes", help="File of the known labels: one per line, or JSON/YAML.")
    ] = None,
    aliases: Annotated[
        Path | None, typer.Option("--aliases", help="File of found label -> known label: JSON/YAML or CSV.")
    ] = None,
    near: Annotated[bool, typer.Option("--near", help="Also search for near duplicates (bursts).")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the report; default: runs/audit/NAME.")] = None,
    params: Params = None,
    preset: Presets = None,
    set_: Overrides = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Decoding processes; default: one per core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every file of PATH: content, problems, duplicates. Writes a report, changes nothing.

    Exit code 0 means that an ingest would accept it; 1 that it would not, with the reason.
    """
    with user_errors(as_json):
        from flows.cli.progress import counting
        from flows.settings.files import load_settings
        from tasks.data.ingest.audit import audit

        given = list(set_ or ())
        file = Path(params) if params else None
        name, why = _format(path, format_, given, lambda: load_settings(file, preset or (), given).ingest)
        sets = given + _sets(path, name, classes, aliases, near, given)
        with _naming_files({"ingest.classes": classes, "ingest.label_aliases": aliases}):
            settings = load_settings(file, preset or (), sets)
            with counting(console(True), "checking") as progress:
                found = audit(settings.ingest, settings.seed, why, progress, workers)
        files = _write(found, path.resolve(), out)
        if as_json:
            rows = [{field: row[field] for field in _FILE_FIELDS} for row in found.rows]
            print_json(found.findings | {"report": str(files[0]), "files": rows})
        else:
            _print(found, files, _next_command(found, params, preset, sets), console(False))
        if not found.findings["usable"]:
            raise typer.Exit(1)


def _write(found: "Audit", source: Path, out: Path | None) -> list[Path]:
    """Write the report of a source to ``out``, or to a folder of its own in the folder of runs; return its files."""
    from flows.engine.environment import runs_root
    from flows.run.folders import record_source, unique_folder
    from models.files import replacing_folder
    from tasks.core.locks import locked
    from tasks.data.ingest.audit_report import REPORT, write_audit

    parent = runs_root() / "audit"
    with locked(out or parent, "writes an audit"):
        folder = out or unique_folder(parent, source.name or "root", str(source))
        with replacing_folder(folder, REPORT) as partial:
            files = [folder / file.name for file in write_audit(found, partial)]
            record_source(partial, str(source))
    return files


@contextlib.contextmanager
def _naming_files(files: dict[str, Path | None]) -> Iterator[None]:
    """Add to an error on a setting the file that an option read it from."""
    try:
        yield
    except UserError as error:
        given = [
            f"{key} is read from {path}" for key, path in files.items() if path and key.split(".")[1] in str(error)
        ]
        hint = "; ".join(filter(None, (error.hint, *given)))
        if not given:
            raise
        raise UserError(error.what, where=error.where, expected=error.expected, found=error.found, hint=hint) from error


def _format(
    path: Path, given: str | None, sets: list[str], settings: Callable[[], "IngestSettings"]
) -> tuple[str, str]:
    """Return the format and the reason for it; what the settings exclude does not count in a guess."""
    from tasks.data.ingest.audit import guess_format

    if given is not None:
        return given, "as --format says"
    named = [text.partition("=")[2] for text in sets if text.startswith("ingest.source=")]
    if named:
        return named[-1], "as ingest.source says"
    found, why = guess_format(path, settings())
    implied = {
        text.partition("=")[0].split(".")[1] for text in sets if text.startswith("ingest.")
    } & _FORMATS_WITH_SETTINGS
    return (implied.pop(), "as its settings are given") if found == "images" and len(implied) == 1 else (found, why)


def _sets(path: Path, name: str, classes: Path | None, aliases: Path | None, near: bool, given: list[str]) -> list[str]:
    """Return the options as overrides of settings, as an ingest accepts them."""
    from tasks.data.decoding.near_duplicates import DEFAULT_DISTANCE
    from tasks.data.ingest.label_files import read_aliases, read_classes

    sets = [f"ingest.source={name}", f"ingest.path={_yaml(str(path))}"]
    encoding = next((text.partition("=")[2] for text in reversed(given) if text.startswith("ingest.encoding=")), None)
    known = None
    if classes is not None:
        known = read_classes(classes, "--classes", encoding)
        sets.append(f"ingest.classes={_yaml(known)}")
    if aliases is not None:
        sets.append(f"ingest.label_aliases={_yaml(read_aliases(aliases, '--aliases', encoding, known))}")
    if near and not any(text.startswith("ingest.near_duplicates=") for text in given):
        sets.append(f"ingest.near_duplicates={DEFAULT_DISTANCE}")
    return sets


def _yaml(value: Any) -> str:
    """Return a value as YAML: a plain word as it is, all else as JSON."""
    plain = isinstance(value, str) and all(character.isalnum() or character in "/._-" for character in value)
    return value if plain and value[:1] in "/." else json.dumps(value, ensure_ascii=False)


def _next_command(found: "Audit", params: str | None, presets: list[str] | None, sets: list[str]) -> str:
    """Return the command that ingests with these settings, "" if there is nothing to ingest."""
    if not found.findings["images"]:
        return ""
    words = ["fedscene", "data", "ingest"]
    words += ["--params", params] if params else []
    for name in presets or ():
        words += ["--preset", name]
    for text in sets:
        words += ["--set", text]
    splits = found.findings["splits"]
    if sum(splits.values()) == found.findings["images"] and {"train", "test"} <= set(splits):
        words += ["--set", "ingest.split.scheme=given"]
    return shlex.join(words)


def _print(found: "Audit", files: list[Path], command: str, out: "Console") -> None:
    from tasks.data.ingest.audit_report import labels_without_images, report_tables, summary_line, verdict
    from tasks.data.ingest.similar_labels import similar_names

    findings = found.findings
    say(f"{findings['path']} read as {findings['format']}: {findings['why']}")
    say(summary_line(findings))
    if findings["images"] and (empty := labels_without_images(findings["labels"])):
        say(empty)
    for line in similar_names(findings["labels"], findings["sites"]):
        say(line)
    for table in report_tables(found):
        _print_table(table, out)
    say(f"report: {', '.join(map(str, files))}")
    say(f"{verdict(findings)} {findings['problem'] or ''}".rstrip())
    if command:
        say(f"{'continue with' if findings['usable'] else 'once this is fixed, continue with'}:\n  {command}")


def _print_table(table: "ReportTable", out: "Console") -> None:
    """Print a table; names come from outside, so nothing is read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in table.heads:
        shown.add_column(Text(head), overflow="fold")
    for row in table.rows[:_MAX_ROWS]:
        shown.add_row(*map(Text, row))
    say(f"{table.title}:")
    out.print(shown)
    if len(table.rows) > _MAX_ROWS:
        say(f"  and {len(table.rows) - _MAX_ROWS} more")
