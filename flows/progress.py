"""What a person sees while a run goes on. Everything goes to stderr; stdout is for results."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tasks.records import RoundRecord


class Quiet:
    """Says nothing."""

    def stage(self, round_: int, name: str, clients: int) -> None:
        """A stage begins."""

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """A round is finished."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""


class Live:
    """One moving line with the present stage, and one line for every finished round.

    Args:
        console: Where to draw; a terminal gets the moving line, a file only the finished rounds.
        rounds: Rounds of the run.
    """

    def __init__(self, console: Console, rounds: int) -> None:
        self.console, self.rounds, self.began = console, rounds, time.monotonic()
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
        who = f", {clients} clients" if clients else ""
        where = f"round {round_}/{self.rounds}: " if round_ else ""
        self.bar.update(self.task, description=f"{where}{name}{who}")

    def note(self, text: str) -> None:
        """Writes a line."""
        self.bar.console.print(text, highlight=False)

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """Writes the round's line."""
        metrics = record.metrics
        seconds = sum(stage.seconds for stage in record.stages)
        dropped = f", {len(record.dropped)} dropped" if record.dropped else ""
        shown = (("macro-AP", "macro_ap"), ("micro-AP", "micro_ap"), ("loss", "loss"))
        scored = ", ".join(f"{title} {metrics[key]:.3f}" for title, key in shown if key in metrics) or "not scored"
        self.bar.console.print(
            f"round {record.round}/{self.rounds}: {scored}, {'done before' if found else f'{seconds:.0f} s'}{dropped}",
            highlight=False,
        )


@contextlib.contextmanager
def counting(console: Console, what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A line that counts; yields ``count(done, total or None)``."""
    columns = SpinnerColumn(), TextColumn("{task.description} {task.completed:.0f}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
