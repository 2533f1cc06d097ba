"""What a person sees while a table is made: a moving line with the present round, one line for every row."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flows.papers.replicate.tables import Job
from tasks.core.records import RoundRecord


class Rows:
    """Progress of a table; to stderr, as stdout is for results.

    Args:
        console: Where to draw; a terminal gets the moving line, a file only the finished rows.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.began, self.row_began = console, time.monotonic(), time.monotonic()
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("starting")
        self.head, self.rounds, self.new = "", 0, 0
        self.place, self.clients = "", 0

    def __enter__(self) -> "Rows":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def row_begins(self, number: int, total: int, job: Job) -> None:
        """Names the row."""
        self.head, self.row_began = f"[{number}/{total}] {job.row}, seed {job.seed}", time.monotonic()
        self.rounds, self.new = job.epochs or job.rounds, 0
        self._show("")
        if not self.console.is_terminal:  # a file has no moving line
            self._say(f"{self.head}: begins")

    def row_done(self, job: Job, run: Mapping[str, Any] | None, failed: str | None) -> None:
        """Writes the row's line."""
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        spent = f"{time.monotonic() - self.row_began:.0f} s, {minutes}:{seconds:02d} in all"
        if run is None:
            self._say(f"{self.head}: failed: {(failed or '').splitlines()[0]}")
            return
        metrics = run["at"]["rounds"]["metrics"]
        done = spent if self.new else "done before"
        self._say(f"{self.head}: macro-AP {metrics['macro_ap']:.3f}, micro-AP {metrics['micro_ap']:.3f}, {done}")

    def counted(self, done: int, total: int | None) -> None:
        """Shows how many images are prepared."""
        self.bar.update(self.task, description=f"preparing images {done}" + (f"/{total}" if total else ""))

    def stage(self, round_: int, name: str, clients: int) -> None:
        """Shows the stage."""
        self.new = max(self.new, 1)
        where = f"round {round_}/{self.rounds}, " if round_ else ""
        self.place, self.clients = f": {where}{name}", clients
        self._show(self.place + (f", {clients} clients" if clients else ""))

    def clients_done(self, count: int) -> None:
        """Shows how many clients of the stage have ended."""
        self._show(f"{self.place}, {count} of {self.clients} clients")

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """A round is finished; the line goes on with the next stage."""
        del record, found

    def note(self, text: str) -> None:
        """Where a row's data and run lie is in the table."""
        del text

    def _show(self, text: str) -> None:
        self.bar.update(self.task, description=f"{self.head}{text}")

    def _say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False)
