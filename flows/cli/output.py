"""Output of commands: human-readable tables and progress, or one JSON object for programs, errors in one place."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from models.errors import PREFIX, UserError
from tasks.core.json_files import to_json_values
from tasks.core.names import visible_lines


class SafeConsole(Console):
    """A console for text from outside: names are never markup, :emoji: or control sequences of a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is written, piece by piece; invisible characters as escapes."""
        for part in super().render(renderable, options):
            yield part if part.control or part.text.isprintable() else Segment(visible_lines(part.text), part.style)


def console(as_json: bool) -> Console:
    """Return the console for tables: stdout, or stderr when stdout is for JSON."""
    found = SafeConsole(stderr=as_json)
    if not found.is_terminal:  # a file or a pipe has no width, and tables cut to 80 columns lose their numbers
        found = SafeConsole(stderr=as_json, width=160)
    return found


def say(line: object, out: Console | None = None) -> None:
    """Print a line as it is, without markup or wrapping.

    Args:
        line: The line; names from outside may be in it.
        out: Console to print to; default: stdout.
    """
    (out or console(False)).print(str(line), markup=False, emoji=False, highlight=False, soft_wrap=True)


def note(line: object) -> None:
    """Print a line as it is on stderr."""
    say(line, console(True))


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; NaN, which JSON does not have, becomes null."""
    print(json.dumps(to_json_values(value), indent=1, default=str))


@contextlib.contextmanager
def user_errors(as_json: bool = False) -> Iterator[None]:
    """Print a user error without a traceback and end the command with exit code 2."""
    try:
        yield
    except UserError as error:
        _print_error(error, as_json)
        raise typer.Exit(2) from error
    except OSError as error:
        problem = UserError(
            "a file or folder cannot be used",
            where=error.filename,
            found=error.strerror or error,
            hint="check permissions, free space and FEDSCENE_RUNS (the folder of runs)",
        )
        _print_error(problem, as_json)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        if "flows.engine.interrupt" not in sys.modules:  # else it has printed that itself
            print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from error


def run_and_exit(work: Callable[[], object]) -> None:
    """Run ``work`` as a program: a user error ends it with the message and exit code 2, as in a command."""
    try:
        with user_errors():
            work()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def _print_error(error: UserError, as_json: bool) -> None:
    print(f"{PREFIX}{visible_lines(error)}", file=sys.stderr)
    if as_json:
        parts = ("what", "where", "expected", "found", "hint")
        print_json({"error": {part: str(getattr(error, part)) for part in parts if getattr(error, part)}})
