"""Runs the cases of one kind and collects the outcomes."""

import importlib
import pkgutil
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

_LONGEST = 30  # seconds that one case may take
_KEPT = 20  # findings that are kept with their case


@dataclass(frozen=True)
class Case:
    """A damaged file: a description, and its bytes."""

    name: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Finding:
    """An exception that escaped."""

    number: int
    case: Any
    error: BaseException

    @property
    def place(self) -> str:
        """The exception's type, and the innermost line of the project or else of all."""
        frames = traceback.extract_tb(self.error.__traceback__)
        ours = [frame for frame in frames if "site-packages" not in frame.filename and "/tests/" not in frame.filename]
        last = (ours or list(frames))[-1]
        return f"{type(self.error).__name__} at {Path(last.filename).name}:{last.lineno}"


@dataclass
class Summary:
    """The outcomes of the cases of one kind."""

    kind: str
    seed: int
    tried: int = 0
    outcomes: Counter = field(default_factory=Counter)
    places: Counter = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Return the lines for the terminal."""
        lines = [f"{self.kind}: {self.tried} cases of seed {self.seed} in {self.seconds:.0f} s"]
        lines += [f"  {count:7d} {outcome}" for outcome, count in self.outcomes.most_common()]
        lines += [f"  {count:7d} ESCAPED: {place}" for place, count in self.places.most_common()]
        seen = set()
        for finding in self.findings:
            if finding.place not in seen:
                seen.add(finding.place)
                text = " ".join(str(finding.error).split())[:160]
                lines.append(f"  case {finding.number}, {finding.case!r}: {finding.place}: {text}")
        lines.append(f"  slowest: case {self.slowest[1]} with {self.slowest[0]:.2f} s")
        return lines


def kinds() -> dict[str, ModuleType]:
    """Return the modules of this package that offer cases, by name."""
    package = __name__.rpartition(".")[0]
    names = [found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = {
        name: importlib.import_module(f"{package}.{name}") for name in names if name not in ("frame", "__main__")
    }
    return {name: module for name, module in modules.items() if hasattr(module, "try_one")}


def case_rng(seed: int, number: int) -> random.Random:
    """Return the random generator of one case."""
    return random.Random(f"{seed}/{number}")  # noqa: S311


def run(
    kind: str, count: int, seed: int = 0, first: int = 0, progress: Callable[[Summary], None] | None = None
) -> Summary:
    """Run ``count`` cases, beginning with number ``first``."""
    module, summary, start = kinds()[kind], Summary(kind, seed), time.monotonic()
    cases: Iterator[Any] = islice(module.cases(seed), first, first + count)
    for number, case in enumerate(cases, first):
        began = time.monotonic()
        try:
            with _limited():
                outcome = module.try_one(case)
        except Exception as error:
            finding = Finding(number, case, error)
            summary.places[finding.place] += 1
            if len(summary.findings) < _KEPT or summary.places[finding.place] == 1:
                summary.findings.append(finding)
        else:
            summary.outcomes[outcome] += 1
        summary.slowest = max(summary.slowest, (time.monotonic() - began, number))
        summary.tried, summary.seconds = summary.tried + 1, time.monotonic() - start
        if progress and summary.tried % 500 == 0:
            progress(summary)
    return summary


class _limited:
    """Raise TimeoutError in a case that takes too long."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._late)
        signal.setitimer(signal.ITIMER_REAL, _LONGEST)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    @staticmethod
    def _late(*_: object) -> None:
        raise TimeoutError(f"a case took over {_LONGEST} s")
