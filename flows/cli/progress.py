"""Progress of a run in the terminal. Everything goes to stderr; stdout is for results."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flows.cli.output import say
from tasks.core.metric_titles import headline
from tasks.core.records import RoundRecord

LOG_INTERVAL_S = 30.0  # between two lines for a file within a round


def duration_text(seconds: float) -> str:
    """Return a time as 40 s, 12 min or 3 h 05 min."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


class Live:
    """One moving line with the current stage, and one line per finished round with the remaining time.

    Args:
        console: Console to write to; a terminal gets the moving line, a file the finished rounds and, in long rounds,
            a line every ``LOG_INTERVAL_S`` seconds.
        rounds: Rounds of the run.
    """

    def __init__(self, console: Console, rounds: int) -> None:
        self.console, self.rounds, self.last_line = console, rounds, time.monotonic()
        self.stage_text, self.clients = "", 0
        self.round_began: float | None = None
        self.open_rounds = rounds
        self.seconds: list[float] = []  # of the rounds done here, from the first stage to the end
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("starting")

    def __enter__(self) -> "Live":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def stage(self, round_: int, name: str, clients: int) -> None:
        """Show the stage."""
        if round_ and self.round_began is None:
            self.round_began = time.monotonic()
        where = f"round {round_}/{self.rounds}: " if round_ else ""
        self.stage_text, self.clients = f"{where}{name}", clients
        self._show(f"{self.stage_text}, {clients} clients" if clients else self.stage_text)

    def clients_done(self, count: int) -> None:
        """Show how many clients of the stage are done."""
        self._show(f"{self.stage_text}, {count} of {self.clients} clients")

    def _show(self, text: str) -> None:
        self.bar.update(self.task, description=text + self._left())
        if not self.console.is_terminal and time.monotonic() - self.last_line > LOG_INTERVAL_S:
            self.note(text + self._left())

    def _left(self) -> str:
        """Return the time until the last round, from the mean of the rounds done here; "" before the first."""
        if not self.seconds:
            return ""
        spent = time.monotonic() - self.round_began if self.round_began is not None else 0.0
        mean = sum(self.seconds) / len(self.seconds)
        return f", about {duration_text(max(mean * self.open_rounds - spent, 0))} left" if self.open_rounds else ""

    def note(self, text: str) -> None:
        """Write a line."""
        self.last_line = time.monotonic()
        say(text, self.bar.console)

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """Write the round's line."""
        seconds = sum(stage.seconds for stage in record.stages)
        dropped = f", {len(record.dropped)} dropped" if record.dropped else ""
        metrics_text = headline(record.metrics) or "not evaluated"
        if not found and self.round_began is not None:
            self.seconds.append(time.monotonic() - self.round_began)
        self.round_began, self.open_rounds = None, self.rounds - record.round
        spent = "done before" if found else f"{seconds:.0f} s"
        self.note(f"round {record.round}/{self.rounds}: {metrics_text}, {spent}{dropped}{self._left()}")


@contextlib.contextmanager
def counting(console: Console, what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a line that counts; yield ``count(done, total or None)``."""
    columns = SpinnerColumn(), TextColumn("{task.description} {task.completed:.0f}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
