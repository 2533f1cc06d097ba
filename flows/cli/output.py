"""How commands speak: tables and progress for a person, one JSON object for a program, errors in one place."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from models.errors import PREFIX, UserError
from tasks.core.json_files import to_json_values
from tasks.core.names import visible_lines

Params = Annotated[str | None, typer.Option("--params", help="Settings file; default: params.yaml if it is here.")]
Presets = Annotated[
    list[str] | None, typer.Option("--preset", "-p", help="Shipped preset or YAML file; may be repeated.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", "-s", help="section.key=value; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]


class SafeConsole(Console):
    """A console for text from outside: a name is no markup, no :emoji:, and no control sequence of a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is written, piece by piece; what cannot be seen in it as escapes."""
        for part in super().render(renderable, options):
            yield part if part.control or part.text.isprintable() else Segment(visible_lines(part.text), part.style)


def console(as_json: bool) -> Console:
    """Where tables go: stdout for a person, stderr when stdout is for JSON."""
    made = SafeConsole(stderr=as_json)
    if not made.is_terminal:  # a file or a pipe has no width, and tables cut to 80 columns lose their numbers
        made = SafeConsole(stderr=as_json, width=160)
    return made


def say(line: str) -> None:
    """A line on stderr as it is: names from outside are no markup."""
    console(True).print(line, markup=False, emoji=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON object on stdout; NaN becomes null, which JSON has no word for."""
    print(json.dumps(to_json_values(value), indent=1, default=str))


@contextlib.contextmanager
def user_errors(as_json: bool = False) -> Iterator[None]:
    """A user's error is printed without a traceback and ends the command with exit code 2."""
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
            hint="rights, free space, and FEDSCENE_RUNS (the folder of runs)",
        )
        _print_error(problem, as_json)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        if "flows.engine.interrupt" not in sys.modules:  # else it has said so itself
            print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from error


def run_and_exit(work: Callable[[], object]) -> None:
    """``work`` as a program of its own: a user's error ends it with the message and exit code 2, as in a command."""
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
