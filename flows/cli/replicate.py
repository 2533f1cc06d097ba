"""``fedscene replicate``: a paper's table, its rows run here, ours beside the printed figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.output import Json, Overrides, console, print_json, user_errors

if TYPE_CHECKING:
    from flows.papers.replicate.tables import Table

_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "soft_wrap": True}


def replicate(
    table: Annotated[str | None, typer.Argument(help="A shipped table, or a YAML file.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the tables, or the rows of TABLE; run nothing.")] = False,
    scale: Annotated[str, typer.Option("--scale", help="small: minutes on 2 cores; full: the paper's.")] = "small",
    rows: Annotated[str | None, typer.Option("--rows", help="Run these rows only: A,B. Others are shown.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Seeds of the training: 1,2,3.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Folder of the image folders that tables need.")] = None,
    set_: Overrides = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; default: runs/tables/TABLE-SCALE.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run; run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run the missing rows of a paper's table; write it as Markdown, JSON and images, beside the printed figures.

    Run it again to go on. Tables share rows: a run that another table made is not made again. Ends with 1 if a row
    failed; the table then says why.
    """
    with user_errors(as_json):
        from flows.papers.replicate.tables import load_table
        from models.errors import UserError

        if list_:
            _list(None if table is None else load_table(table), as_json)
            return
        if table is None:
            raise UserError("which table?", where="fedscene replicate TABLE", hint="fedscene replicate --list")
        from flows.cli.replicate_progress import Rows
        from flows.engine.environment import runs_root
        from flows.papers.replicate.run import make_plan, state
        from flows.papers.replicate.run import replicate as run_rows
        from flows.run.folders import table_folder

        loaded = load_table(table)
        plan = make_plan(loaded, scale, data, _names(rows), set_ or (), numbers(seeds))
        if dry_run:
            _show_state(state(plan), as_json)
            return
        folder = out or table_folder(runs_root() / "tables", table, loaded.name, scale)
        with Rows(console(True)) as progress:
            report = run_rows(plan, folder, progress)
        failed = [row["name"] for row in report["rows"] if row["failed"]]
        if as_json:
            print_json(report)
        else:
            _show(report)
            console(False).print(f"table: {folder / 'table.md'}, with everything: {folder / 'table.json'}", **_PLAIN)
        if failed:
            console(True).print(f"failed, the table says why: {', '.join(failed)}", **_PLAIN)
            raise typer.Exit(1)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def numbers(text: str | None) -> list[int] | None:
    """``7,8,9`` as numbers.

    Raises:
        UserError: If it is something else, or a number stands twice.
    """
    from models.errors import UserError

    if text is None:
        return None
    found = _names(text)
    plain = all(part.isascii() and part.isdigit() for part in found)
    if not found or not plain or len({int(part) for part in found}) < len(found):
        raise UserError("not seeds", where="--seeds", expected="different whole numbers: 1,2,3", found=text)
    return [int(part) for part in found]


def _list(table: "Table | None", as_json: bool) -> None:
    """Tables with their rows, or one table's rows."""
    from flows.papers.replicate.tables import load_table, shipped

    tables = [table] if table is not None else [load_table(name) for name in shipped()]
    if as_json:
        keys = {"title", "source", "rows"}
        print_json({entry.name: entry.model_dump(mode="json", include=keys) for entry in tables})
        return
    out = console(False)
    for entry in tables:
        out.print(f"{entry.name}: {entry.title}. {entry.source}", **_PLAIN)
        for scale in entry.scales:
            found = entry.dataset(scale)
            needs = f" (needs --data with {found.needs.folder}/)" if found.needs else ""
            out.print(f"  {scale}: {found.title}{needs}", **_PLAIN)
        out.print(f"  rows: {', '.join(entry.rows)}", **_PLAIN)


def _show_state(entries: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"runs": entries})
        return
    from rich.table import Table as Shown

    shown = Shown(title="What would run", title_justify="left")
    for head in ("row", "seed", "rounds done", "then"):
        shown.add_column(head)
    for entry in entries:
        done = entry["rounds"] == entry["of"]
        then = "nothing, it is finished" if done else "run" if entry["selected"] else "nothing, not selected"
        then = f"fail: {entry['failed'].splitlines()[0]}" if entry["failed"] else then
        shown.add_row(entry["row"], str(entry["seed"]), f"{entry['rounds']}/{entry['of']}", then)
    console(False).print(shown)


def _show(report: dict[str, Any]) -> None:
    """The four metrics at equal rounds and equal local epochs, and the paper's."""
    from rich.table import Table as Shown
    from rich.text import Text

    from flows.papers.replicate.write import main_table

    heads, rows = main_table(report)
    shown = Shown(title=Text(f"{report['title']}, scale {report['scale']}"), title_justify="left")
    for number, head in enumerate(heads):
        shown.add_column(Text(head), justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        shown.add_row(*map(Text, row))
    out = console(False)
    out.print(shown)
    out.print(report["scale_note"], **_PLAIN)
