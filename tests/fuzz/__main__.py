"""``python tests/fuzz``: many damaged inputs; the exit code is 1 if an exception escaped."""

import argparse
import sys
import warnings
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # as pytest has it

from tests.fuzz.frame import Case, Summary, kinds, run  # noqa: E402


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("--kind", action="append", choices=sorted(kinds()), help="one or several; default: all")
    parser.add_argument("--count", type=int, default=1000, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to see one again")
    parser.add_argument("--keep", type=Path, help="folder for the files whose exception escaped")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    escaped = 0
    for kind in options.kind or sorted(kinds()):
        summary = run(kind, options.count, options.seed, options.first, _progress)
        print("\n".join(summary.lines()), flush=True)
        escaped += sum(summary.places.values())
        for finding in summary.findings if options.keep else ():
            if isinstance(finding.case, Case):
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{kind}-{options.seed}-{finding.number}").write_bytes(finding.case.data)
    return int(escaped > 0)


def _progress(summary: Summary) -> None:
    escaped = sum(summary.places.values())
    print(
        f"{summary.kind}: {summary.tried} tried, {escaped} escaped, {summary.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )


sys.exit(main())
