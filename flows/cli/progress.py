"""What a person sees while a run goes on. Everything goes to stderr; stdout is for results."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tasks.core.records import RoundRecord

SILENCE_S = 30.0  # after which a file gets a line between two rounds


def _duration(seconds: float) -> str:
    """A time as one reads it: 40 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


class Live:
    """One moving line with the present stage, and one line for every finished round with the time that is left.

    Args:
        console: Where to draw; a terminal gets the moving line, a file the finished rounds and, where they take long,
            a line now and then.
        rounds: Rounds of the run.
    """

    def __init__(self, console: Console, rounds: int) -> None:
        self.console, self.rounds, self.said = console, rounds, time.monotonic()
        self.place, self.clients = "", 0
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
        """Shows the stage."""
        if round_ and self.round_began is None:
            self.round_began = time.monotonic()
        where = f"round {round_}/{self.rounds}: " if round_ else ""
        self.place, self.clients = f"{where}{name}", clients
        self._show(f"{self.place}, {clients} clients" if clients else self.place)

    def clients_done(self, count: int) -> None:
        """Shows how many clients of the stage have ended."""
        self._show(f"{self.place}, {count} of {self.clients} clients")

    def _show(self, text: str) -> None:
        self.bar.update(self.task, description=text + self._left())
        if not self.console.is_terminal and time.monotonic() - self.said > SILENCE_S:
            self.note(text + self._left())

    def _left(self) -> str:
        """The time until the last round is done, by the mean of the rounds that were done here; "" before the first."""
        if not self.seconds:
            return ""
        spent = time.monotonic() - self.round_began if self.round_began is not None else 0.0
        mean = sum(self.seconds) / len(self.seconds)
        return f", about {_duration(max(mean * self.open_rounds - spent, 0))} left" if self.open_rounds else ""

    def note(self, text: str) -> None:
        """Writes a line."""
        self.said = time.monotonic()
        self.bar.console.print(text, highlight=False, markup=False)

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """Writes the round's line."""
        metrics = record.metrics
        seconds = sum(stage.seconds for stage in record.stages)
        dropped = f", {len(record.dropped)} dropped" if record.dropped else ""
        shown = (("macro-AP", "macro_ap"), ("micro-AP", "micro_ap"), ("loss", "loss"))
        scored = ", ".join(f"{title} {metrics[key]:.3f}" for title, key in shown if key in metrics) or "not scored"
        if not found and self.round_began is not None:
            self.seconds.append(time.monotonic() - self.round_began)
        self.round_began, self.open_rounds = None, self.rounds - record.round
        spent = "done before" if found else f"{seconds:.0f} s"
        self.note(f"round {record.round}/{self.rounds}: {scored}, {spent}{dropped}{self._left()}")


@contextlib.contextmanager
def counting(console: Console, what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A line that counts; yields ``count(done, total or None)``."""
    columns = SpinnerColumn(), TextColumn("{task.description} {task.completed:.0f}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
