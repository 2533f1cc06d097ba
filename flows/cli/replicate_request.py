"""A call of ``fedscene replicate``, and what it prints whether it is for a table or a benchmark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import typer

from flows.cli.output import console, note, print_json, say


class AsDict(Protocol):
    """What ``--json`` prints."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        ...


@dataclass(frozen=True)
class Request:
    """The options of a call, as in ``flows.cli.replicate``."""

    table: str
    scale: str
    data: Path | None
    rows: Sequence[str]
    overrides: Sequence[str]
    seeds: Sequence[int] | None
    out: Path | None
    dry_run: bool
    show: bool
    as_json: bool

    def folder(self, name: str) -> Path:
        """Return the folder to write to, for a table of this name."""
        from flows.engine.environment import runs_root
        from flows.run.folders import table_folder

        return self.out or table_folder(runs_root() / "tables", self.table, name, self.scale)

    def print_states(self, states: Sequence[AsDict], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print what would run: the states as JSON, or the rows as a table."""
        if self.as_json:
            print_json({"runs": [state.as_dict() for state in states]})
            return
        print_table("What would run", heads, rows)

    def end(self, report: AsDict, failed: Sequence[str], show: Callable[[], None], files: str) -> None:
        """Print the results and the files they are in; failed rows give exit code 1."""
        if self.as_json:
            print_json(report.as_dict())
        else:
            show()
            say(files)
        if failed:
            note(f"failed rows (the page gives the reasons): {', '.join(failed)}")
            raise typer.Exit(1)


def print_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], justify: Literal["left", "right"] = "left"
) -> None:
    """Print a table whose first column, the rows' names, never wraps; ``justify``: of the others."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(Text(head), justify=justify if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*map(Text, row))
    console(False).print(table)
