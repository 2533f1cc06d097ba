"""``fedscene fidelity``: which claims of FMMAN's paper hold in our runs."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.output import Json, Overrides, console, print_json, user_errors


def fidelity(
    out: Annotated[Path, typer.Option("--out", help="The report.")] = Path("docs/fidelity-fmman.md"),
    seeds: Annotated[str | None, typer.Option("--seeds", help="At least three: 1,2,3.")] = None,
    set_: Overrides = None,
    as_json: Json = False,
) -> None:
    """Test the claims of FMMAN's paper on drawn sites, seed by seed, and write the fidelity report.

    Runs what is missing of the tables fmman-claims-cabinet and fmman-claims-defects; run it again to go on.
    """
    with user_errors(as_json):
        from flows.cli.replicate import numbers
        from flows.cli.replicate_progress import Rows
        from flows.papers.fidelity.run import fidelity as run_fidelity

        with Rows(console(True)) as progress:
            found = run_fidelity(out, numbers(seeds), set_ or (), progress)
        if as_json:
            print_json(found)
            return
        shown = console(False)
        for entry in found["verdicts"]:
            line = f"{entry['claim']} ({entry['winner']} - {entry['loser']}): {entry['mark']}, {entry['mean']:+.4f}"
            shown.print(line, markup=False, emoji=False, soft_wrap=True)
        shown.print(f"report: {found['report']}", markup=False, emoji=False, soft_wrap=True)
