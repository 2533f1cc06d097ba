"""One contestant of a workload, and one run of it: a process whose rounds are stamped from outside."""

import json
import os
import re
import resource
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import TAG, Family

# A line of ``fedscene run`` at the end of a round that was not evaluated, or one of the contestants in benchmarks/.
ROUND_DONE = re.compile(r"^round (\d+)(?:/\d+: not evaluated| done)")
POLL_S = 0.005
Metrics = dict[str, float]


class RunError(Exception):
    """A contestant's process failed; the message is its last line."""


@dataclass(frozen=True)
class Stamp:
    """When something was seen: seconds since the start, and CPU seconds used until then."""

    wall: float
    cpu: float


@dataclass
class Run:
    """What was seen of one process.

    Attributes:
        rounds: Round -> its end.
        first: When the file ``until`` of the contestant appeared.
        end: The end of the process, with all that it had started.
        result: The JSON object that it printed on stdout; empty without one.
    """

    rounds: dict[int, Stamp] = field(default_factory=dict)
    first: Stamp | None = None
    end: Stamp | None = None
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contestant:
    """A way to do the work of a workload.

    Attributes:
        name: Short name, the key in the results.
        title: What the page calls it.
        command: Makes the command of a run, in a folder of its own.
        collect: Turns a run into figures.
        environment: More variables.
        until: Tells the file or folder of a run, which is in the given folder, whose first appearance is stamped.
        fault: Why it cannot run at all; "" if it can.
        single: Whether once is enough: a long run.
    """

    name: str
    title: str
    command: Callable[[Path], Sequence[str]]
    collect: Callable[[Run, Path], Metrics]
    environment: Mapping[str, str] = field(default_factory=dict)
    until: Callable[[Path], Path] | None = None
    fault: str = ""
    single: bool = False

    def once(self) -> "Contestant":
        """Return the contestant that is run once, whatever the number of repeats."""
        return replace(self, single=True)

    def collecting(self, collect: "Callable[[Run, Path], Metrics]") -> "Contestant":
        """Return the contestant with other figures."""
        return replace(self, collect=collect)


def run_once(contestant: Contestant, folder: Path, limit_s: float) -> Metrics:
    """Run a contestant in ``folder`` and return its figures.

    Raises:
        RunError: If it fails, takes longer than ``limit_s`` seconds, or a figure is missing.
    """
    tag = uuid.uuid4().hex
    environment = os.environ | {"OMP_NUM_THREADS": "1", TAG: tag} | dict(contestant.environment)
    before, began = _children_seconds(), time.perf_counter()
    with (folder / "stdout").open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in contestant.command(folder)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    watch = _Watch(process, Family(tag), began)
    try:
        watch.start(folder / "stderr", contestant.until and contestant.until(folder))
        process.wait(limit_s)
        end = Stamp(time.perf_counter() - began, _children_seconds() - before)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"not finished after {limit_s:.0f} s") from error
    finally:
        _end(process, Family(tag))
    lines = watch.finish()
    if process.returncode != 0:
        raise RunError(_last_line(lines, process.returncode))
    run = Run(watch.rounds, watch.first, end, _json_of((folder / "stdout").read_text(errors="replace")))
    try:
        return contestant.collect(run, folder)
    except (KeyError, AttributeError, TypeError) as error:
        raise RunError(f"ended without {error}: {_last_line(lines, 0)}") from error


class _Watch:
    """Stamps what a process shows while it runs.

    Args:
        process: The process; its stderr is a pipe.
        family: It and its descendants.
        began: ``time.perf_counter()`` when it was started.
    """

    def __init__(self, process: subprocess.Popen, family: Family, began: float) -> None:
        self.process, self.family, self.began = process, family, began
        self.rounds: dict[int, Stamp] = {}
        self.first: Stamp | None = None
        self.lines: list[str] = []
        self.threads: list[threading.Thread] = []

    def start(self, log: Path, until: Path | None) -> None:
        """Follow stderr, which goes to ``log``, and wait for the file ``until``."""
        self.threads = [threading.Thread(target=self._follow, args=(log,), daemon=True)]
        if until is not None:
            self.threads.append(threading.Thread(target=self._probe, args=(until,), daemon=True))
        for thread in self.threads:
            thread.start()

    def finish(self) -> list[str]:
        """Return the last lines; a descendant that keeps the pipe open is not waited for."""
        for thread in self.threads:
            thread.join(2.0)
        return list(self.lines)

    def _follow(self, log: Path) -> None:
        assert self.process.stderr is not None
        with log.open("w") as file:
            for raw in self.process.stderr:
                line = raw.decode(errors="replace").rstrip()
                if found := ROUND_DONE.match(line):
                    self.rounds[int(found[1])] = self._stamp()
                file.write(line + "\n")
                self.lines = [*self.lines[-39:], line]

    def _probe(self, until: Path) -> None:
        while self.process.poll() is None and not until.exists():
            time.sleep(POLL_S)
        if until.exists():
            self.first = self._stamp()

    def _stamp(self) -> Stamp:
        wall = time.perf_counter() - self.began
        return Stamp(wall, self.family.cpu_seconds())


def _children_seconds() -> float:
    """Return the CPU seconds of all ended children of this process, with theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end(process: subprocess.Popen, family: Family) -> None:
    """Kill what is left of a run: servers and actors that outlive their parent."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for member in family.members():
        try:
            os.kill(member.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _last_line(lines: Sequence[str], code: int) -> str:
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if re.match(r"(\w+\.)*\w*(Error|Exception)\b|error:", line)]
    return (errors or said or [f"exit status {code}"])[-1][:300]


def _json_of(text: str) -> dict[str, Any]:
    """Return the JSON object of an output: all of it, or its last line that is one."""
    for part in (text, *reversed(text.splitlines())):
        try:
            value = json.loads(part)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}
