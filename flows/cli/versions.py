"""Commands for versioned data: ``fedscene data add, remote, push, pull, versions, version, restore``."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.data import data_app
from flows.cli.options import Json
from flows.cli.output import console, note, print_json, say, user_errors

if TYPE_CHECKING:
    from tasks.versioning.versions import Version

PARAMS = Path("params.yaml")
DIGITS = 12  # of a version or commit, as printed

RunOption = Annotated[str | None, typer.Option("--run", help="A run: its id in MLflow or its folder's name.")]


@data_app.command("add")
def add(
    path: Annotated[Path, typer.Argument(help="Folder or file of raw data, in the repository or elsewhere.")],
    name: Annotated[str | None, typer.Option("--name", help="Name below data/raw; default: the name of PATH.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="Also sets ingest.source to this format.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace other data of that name by this, as a new version.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put raw data under version control, as data/raw/NAME in DVC, and set ingest.path; repeat for a new version."""
    with user_errors(as_json):
        from flows.cli.progress import counting
        from flows.settings.files import load_settings
        from flows.settings.params_file import write_settings
        from tasks.versioning import raw_data

        wanted = raw_data.planned_path(Path.cwd(), path, name)
        sets = [f"ingest.path={wanted}"] + [f"ingest.source={format_}"] * bool(format_)
        settings = load_settings(PARAMS, (), sets)  # refused before any copy
        with counting(console(True), "copying") as progress:
            added = raw_data.add(Path.cwd(), path, name, replace, progress)
        changes = write_settings(PARAMS, settings)
        files = [added.pointer, raw_data.IGNORE, *([str(PARAMS)] if changes else [])]
        commit = f"git add {shlex.join(files)} && git commit -m {shlex.quote(f'data: {added.path}')}"
        if as_json:
            print_json(vars(added) | {"params": changes, "commit": commit})
            return
        what = {"new": "added", "changed": "a new version", "same": "unchanged"}[added.change]
        say(f"{added.path}: {what}, {added.files} files, md5 {added.md5}")
        if added.left_out:
            say(f"{added.left_out} files are not versioned: a .dvcignore excludes them")
        for line in changes:
            say(f"{PARAMS}: {line}")
        if settings.ingest.source == "synthetic":
            say("ingest.source is synthetic, which reads no files: set it, or repeat with --format")
        say(f"keep this version:  {commit}\nthen:  dvc repro")


@data_app.command("remote")
def remote(
    url: Annotated[str, typer.Argument(help="A folder, s3://bucket/path or ssh://user@host/path.")],
    name: Annotated[str, typer.Option("--name", help="Name of the remote.")] = "storage",
    as_json: Json = False,
) -> None:
    """Set DVC's default remote, where versions of the data are also stored; written to .dvc/config."""
    with user_errors(as_json):
        from tasks.versioning.remote import set_remote

        made = set_remote(Path.cwd(), url, name)
        if as_json:
            print_json({"name": made.name, "url": made.url})
            return
        say(f"remote {made.name}: {made.url}\nkeep it:  git add .dvc/config && git commit")


@data_app.command("push")
def push(as_json: Json = False) -> None:
    """Upload raw data and the stages' outputs to the remote."""
    _transfer("push", "sent to", as_json)


@data_app.command("pull")
def pull(as_json: Json = False) -> None:
    """Download the raw data and the stages' outputs of this commit from the remote."""
    _transfer("pull", "fetched from", as_json)


def _transfer(way: str, done: str, as_json: bool) -> None:
    with user_errors(as_json):
        from tasks.versioning import remote

        with console(True).status(f"{way}ing: talking to the remote"):
            where, files = (remote.push if way == "push" else remote.pull)(Path.cwd())
        if as_json:
            print_json({"remote": where.name, "url": where.url, "files": files})
            return
        text = f"{files} files {done}" if files else "nothing to do, all files are here and at"
        say(f"{text} {where.url}")


@data_app.command("versions")
def versions(as_json: Json = False) -> None:
    """List the versions of the data in git's history, newest first, each by its first commit."""
    with user_errors(as_json):
        from tasks.versioning import versions

        present, known = versions.present_version(Path.cwd()), versions.versions(Path.cwd())
        if present.commit is None and (present.id or present.raw):
            known = [present, *known]
        if as_json:
            print_json({"versions": [_as_dict(version) | {"present": version.key == present.key} for version in known]})
            return
        if not known:
            say("no version yet: dvc repro, then commit dvc.lock")
            return
        _show_versions(known, present)


def _show_versions(known: list["Version"], present: "Version") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for column in ("", "version", "date", "commit", "images", "raw data"):
        table.add_column(column, justify="right" if column == "images" else "left")
    for version in known:
        table.add_row(
            "*" if version.key == present.key else "",
            version.id[:DIGITS] if version.id else "not ingested",
            version.date[:16].replace("T", " ") if version.date else "",
            Text(f"{version.commit[:DIGITS]} {version.subject}" if version.commit else "not committed"),
            "" if version.images is None else str(version.images),
            Text(", ".join(f"{name} {md5[:8]}" for name, md5 in version.raw.items())),
        )
    console(False).print(table)
    say("*: the version that dvc.lock and data/raw/*.dvc name now")


@data_app.command("version")
def version_(run: RunOption = None, as_json: Json = False) -> None:
    """Show the current version of the data, or the one a run was trained on, and its commit."""
    with user_errors(as_json):
        version = find_data_version(run)
        if as_json:
            print_json(_as_dict(version))
            return
        _show_version(version)


def _show_version(version: "Version") -> None:
    where = (
        f"commit {version.commit[:DIGITS]} of {version.date}: {version.subject}" if version.commit else "no commit here"
    )
    say(f"version {version.id or 'none: not ingested yet'}\nin {where}")
    if version.images is not None:
        say(f"{version.images} images")
    for name, md5 in version.raw.items():
        say(f"data/raw/{name}: md5 {md5}")


def find_data_version(run: str | None) -> "Version":
    """Return the current version of the data, or the one that a run was trained on.

    Args:
        run: A run's id in MLflow or its folder's name; ``None``: the current version.

    Raises:
        UserError: If there is none, or the run is unknown.
    """
    from models.errors import UserError
    from tasks.versioning import versions

    here = Path.cwd()
    if run is None:
        present = versions.present_version(here)
        if present.id or present.raw:
            return present
        raise UserError("the data have no version yet", where=here / "dvc.lock", hint="dvc repro, then commit dvc.lock")
    wanted = _version_of_run(run)
    known = [version for version in versions.versions(here) if version.id == wanted]
    return known[-1] if known else versions.Version(wanted, {})


def _version_of_run(run: str) -> str:
    """Return the data version in the run's tag in MLflow; the run's settings name the MLflow server."""
    from flows.engine.environment import runs_root
    from flows.run.find import read_run
    from flows.settings.files import load_settings
    from tasks.tracking import data_version

    folders = {path.parent.name: path.parent for path in runs_root().glob("*/settings.json")}
    settings = read_run(folders[run]) if run in folders else load_settings()
    return data_version.find_data_version(settings.tracking, runs_root(), run)


@data_app.command("restore")
def restore(
    version: Annotated[str | None, typer.Argument(help="A version or its first digits, a commit or a tag.")] = None,
    run: RunOption = None,
    as_json: Json = False,
) -> None:
    """Restore a version: raw data, data set, clients and the settings of the data. Nothing uncommitted is lost."""
    with user_errors(as_json):
        from flows.settings.renames import current_names
        from flows.settings.schema import validate
        from models.errors import UserError
        from tasks.versioning.restore import restore as restore_version
        from tasks.versioning.versions import find_version

        if (version is None) == (run is None):
            raise UserError("give either a version or --run", hint="fedscene data versions lists them")
        found = find_version(Path.cwd(), version or _version_of_run(str(run)))
        with console(True).status("restoring"):
            restore_version(
                Path.cwd(),
                found,
                lambda values: validate(values, f"params.yaml of commit {found.commit}"),
                note,
                current_names,
            )
        if as_json:
            print_json(_as_dict(found))
            return
        _show_version(found)
        say("restored; other settings and code are unchanged. See dvc status for what to run next")


def _as_dict(version: "Version") -> dict[str, Any]:
    return {
        "version": version.id,
        "commit": version.commit,
        "date": version.date,
        "subject": version.subject,
        "images": version.images,
        "raw": dict(version.raw),
    }
