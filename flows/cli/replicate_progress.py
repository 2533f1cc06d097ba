"""Progress of a table in the terminal: a moving line with the current round, and one line per row."""

import time

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flows.cli.output import say
from flows.papers.replicate.run import RowOutcome
from flows.papers.replicate.tables import PlannedRun
from tasks.core.records import RoundRecord


class Rows:
    """Progress of a table; on stderr, as stdout is for results.

    Args:
        console: Console to write to; a terminal gets the moving line, a file only the finished rows.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.began, self.row_began = console, time.monotonic(), time.monotonic()
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("starting")
        self.head, self.rounds, self.new = "", 0, 0
        self.stage_text, self.clients = "", 0

    def __enter__(self) -> "Rows":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def row_begins(self, number: int, total: int, run: PlannedRun) -> None:
        """Show the row."""
        self.head, self.row_began = f"[{number}/{total}] {run.row}, seed {run.seed}", time.monotonic()
        self.rounds, self.new = run.last_round, 0
        self._show("")
        if not self.console.is_terminal:  # a file has no moving line
            self._line(f"{self.head}: begins")

    def row_done(self, run: PlannedRun, result: RowOutcome | None, failed: str | None) -> None:
        """Write the row's line."""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        spent = f"{time.monotonic() - self.row_began:.0f} s, {minutes}:{seconds:02d} in all"
        if result is None:
            self._line(f"{self.head}: failed: {(failed or '').splitlines()[0]}")
            return
        done = spent if self.new else "done before"
        self._line(f"{self.head}: {result.headline}, {done}")

    def counted(self, done: int, total: int | None) -> None:
        """Show how many images are prepared."""
        self.bar.update(self.task, description=f"preparing images {done}" + (f"/{total}" if total else ""))

    def stage(self, round_: int, name: str, clients: int) -> None:
        """Show the stage."""
        self.new = max(self.new, 1)
        where = f"round {round_}/{self.rounds}, " if round_ else ""
        self.stage_text, self.clients = f": {where}{name}", clients
        self._show(self.stage_text + (f", {clients} clients" if clients else ""))

    def clients_done(self, count: int) -> None:
        """Show how many clients of the stage are done."""
        self._show(f"{self.stage_text}, {count} of {self.clients} clients")

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """Show nothing: the next stage of the row replaces the line."""
        del record, found

    def note(self, text: str) -> None:
        """Show nothing: the table names the folders of the data and the runs."""
        del text

    def _show(self, text: str) -> None:
        self.bar.update(self.task, description=f"{self.head}{text}")

    def _line(self, text: str) -> None:
        say(text, self.bar.console)
