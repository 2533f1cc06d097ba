"""``fedscene fidelity``: which claims of FMMAN's paper hold in our runs."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Overrides, parse_seeds
from flows.cli.output import console, print_json, say, user_errors


def fidelity(
    out: Annotated[Path, typer.Option("--out", help="Path of the report.")] = Path("docs/fidelity-fmman.md"),
    seeds: Annotated[str | None, typer.Option("--seeds", help="At least three: 1,2,3.")] = None,
    set_: Overrides = None,
    as_json: Json = False,
) -> None:
    """Test the claims of FMMAN's paper on synthetic sites, seed by seed, and write the reproduction report.

    Runs the missing rows of the tables fmman-claims-cabinet and fmman-claims-defects; repeat it to continue.
    """
    with user_errors(as_json):
        from flows.cli.replicate_progress import Rows
        from flows.papers.fidelity.run import fidelity as run_fidelity

        with Rows(console(True)) as progress:
            found = run_fidelity(out, parse_seeds(seeds), set_ or (), progress)
        if as_json:
            print_json(found)
            return
        for entry in found["verdicts"]:
            rows, outcome = f"{entry['winner']} - {entry['loser']}", entry["outcome"]
            say(f"{entry['claim']} ({rows}): {outcome}, {entry['mean']:+.4f}")
        say(f"report: {found['report']}")
