"""``fedscene data add``, ``remote``, ``push``, ``pull``, ``versions``, ``version``, ``restore``: versioned data."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.data import data_app
from flows.cli.options import Json
from flows.cli.output import console, print_json, user_errors

if TYPE_CHECKING:
    from tasks.versioning.versions import Version

PARAMS = Path("params.yaml")
SHOWN = 12  # digits of a version, and of a commit
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "soft_wrap": True}

RunOption = Annotated[str | None, typer.Option("--run", help="Of this run: its id in MLflow or its folder's name.")]


@data_app.command("add")
def add(
    path: Annotated[Path, typer.Argument(help="Folder or file of raw data, in the repository or elsewhere.")],
    name: Annotated[str | None, typer.Option("--name", help="Name below data/raw; default: that of PATH.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="Also sets ingest.source to this format.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make it a new version of other data of that name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put raw data under version control: data/raw/NAME by DVC, ingest.path in params.yaml. Again: a new version."""
    with user_errors(as_json):
        from flows.cli.progress import counting
        from flows.settings.files import load_settings
        from flows.settings.params_file import write_settings
        from tasks.versioning import raw_data

        wanted = raw_data.plan(Path.cwd(), path, name)
        sets = [f"ingest.path={wanted}"] + [f"ingest.source={format_}"] * bool(format_)
        settings = load_settings(PARAMS, (), sets)  # refused before anything is copied
        with counting(console(True), "copying") as progress:
            added = raw_data.add(Path.cwd(), path, name, replace, progress)
        changes = write_settings(PARAMS, settings)
        files = [added.pointer, raw_data.IGNORE, *([str(PARAMS)] if changes else [])]
        commit = f"git add {shlex.join(files)} && git commit -m {shlex.quote(f'data: {added.path}')}"
        if as_json:
            print_json(vars(added) | {"params": changes, "commit": commit})
            return
        out = console(False)
        what = {"new": "added", "changed": "a new version", "same": "as it was"}[added.change]
        out.print(f"{added.path}: {what}, {added.files} files, md5 {added.md5}", **_PLAIN)
        if added.left_out:
            out.print(f"{added.left_out} files are not versioned: a .dvcignore keeps them out", **_PLAIN)
        for line in changes:
            out.print(f"{PARAMS}: {line}", **_PLAIN)
        if settings.ingest.source == "synthetic":
            out.print("ingest.source is synthetic, which reads no files: set it, or add again with --format", **_PLAIN)
        out.print(f"keep this version:  {commit}\nthen:  dvc repro", **_PLAIN)


@data_app.command("remote")
def remote(
    url: Annotated[str, typer.Argument(help="A folder, s3://bucket/path or ssh://user@host/path.")],
    name: Annotated[str, typer.Option("--name", help="What the remote is called.")] = "storage",
    as_json: Json = False,
) -> None:
    """Set where versions of the data are kept besides this machine: DVC's default remote, in .dvc/config."""
    with user_errors(as_json):
        from tasks.versioning.remote import set_remote

        made = set_remote(Path.cwd(), url, name)
        if as_json:
            print_json({"name": made.name, "url": made.url})
            return
        console(False).print(f"remote {made.name}: {made.url}\nkeep it:  git add .dvc/config && git commit", **_PLAIN)


@data_app.command("push")
def push(as_json: Json = False) -> None:
    """Send raw data and the stages' outputs to the remote."""
    _transfer("push", "sent to", as_json)


@data_app.command("pull")
def pull(as_json: Json = False) -> None:
    """Bring the raw data and the stages' outputs that this commit names from the remote."""
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
        console(False).print(f"{text} {where.url}", **_PLAIN)


@data_app.command("versions")
def versions(as_json: Json = False) -> None:
    """List the versions of the data in git's history, the newest first, each by its first commit."""
    with user_errors(as_json):
        from tasks.versioning import versions

        present, known = versions.present_version(Path.cwd()), versions.versions(Path.cwd())
        if present.commit is None and (present.id or present.raw):
            known = [present, *known]
        if as_json:
            print_json({"versions": [_as_dict(version) | {"present": version.key == present.key} for version in known]})
            return
        if not known:
            console(False).print("no version yet: dvc repro, then commit dvc.lock")
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
            version.id[:SHOWN] if version.id else "not ingested",
            version.date[:16].replace("T", " ") if version.date else "",
            Text(f"{version.commit[:SHOWN]} {version.subject}" if version.commit else "not committed"),
            "" if version.images is None else str(version.images),
            Text(", ".join(f"{name} {md5[:8]}" for name, md5 in version.raw.items())),
        )
    console(False).print(table)
    console(False).print("*: what dvc.lock and data/raw/*.dvc name now")


@data_app.command("version")
def version_(run: RunOption = None, as_json: Json = False) -> None:
    """The version of the data now, or the one that a run was trained on, and the commit that has it."""
    with user_errors(as_json):
        version = _version(run)
        if as_json:
            print_json(_as_dict(version))
            return
        _show_version(version)


def _show_version(version: "Version") -> None:
    out = console(False)
    where = (
        f"commit {version.commit[:SHOWN]} of {version.date}: {version.subject}" if version.commit else "no commit here"
    )
    out.print(f"version {version.id or 'none: not ingested yet'}\nin {where}", **_PLAIN)
    if version.images is not None:
        out.print(f"{version.images} images")
    for name, md5 in version.raw.items():
        out.print(f"data/raw/{name}: md5 {md5}", **_PLAIN)


def _version(run: str | None) -> "Version":
    from models.errors import UserError
    from tasks.versioning import versions

    here = Path.cwd()
    if run is None:
        present = versions.present_version(here)
        if present.id or present.raw:
            return present
        raise UserError("The data have no version yet", where=here / "dvc.lock", hint="dvc repro, then commit dvc.lock")
    wanted = _version_of_run(run)
    known = [version for version in versions.versions(here) if version.id == wanted]
    return known[-1] if known else versions.Version(wanted, {})


def _version_of_run(run: str) -> str:
    """By the run's tag in MLflow, where the run's own settings say that it is."""
    from flows.engine.environment import runs_root
    from flows.run.find import read_run
    from flows.settings.files import load_settings
    from tasks.tracking.data_version import find_data_version

    held = {path.parent.name: path.parent for path in runs_root().glob("*/settings.json")}
    settings = read_run(held[run]) if run in held else load_settings()
    return find_data_version(settings.tracking, runs_root(), run)


@data_app.command("restore")
def restore(
    version: Annotated[str | None, typer.Argument(help="A version, the beginning of one, or a commit or tag.")] = None,
    run: RunOption = None,
    as_json: Json = False,
) -> None:
    """Bring a version back: raw data, data set, clients and the settings of the data. Loses nothing uncommitted."""
    with user_errors(as_json):
        from flows.settings.schema import validate
        from models.errors import UserError
        from tasks.versioning.restore import restore as bring_back
        from tasks.versioning.versions import find_version

        if (version is None) == (run is None):
            raise UserError("Give a version or --run", expected="one of both", hint="fedscene data versions lists them")
        found = find_version(Path.cwd(), version or _version_of_run(str(run)))
        with console(True).status("restoring"):
            bring_back(
                Path.cwd(),
                found,
                lambda values: validate(values, f"params.yaml of commit {found.commit}"),
                lambda line: console(True).print(line, **_PLAIN),
            )
        if as_json:
            print_json(_as_dict(found))
            return
        _show_version(found)
        console(False).print("back as it was; other settings and code are as before. dvc status says what follows")


def _as_dict(version: "Version") -> dict[str, Any]:
    return {
        "version": version.id,
        "commit": version.commit,
        "date": version.date,
        "subject": version.subject,
        "images": version.images,
        "raw": dict(version.raw),
    }
