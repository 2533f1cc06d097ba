"""CPU seconds of a process and everything it starts, read from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

TAG = "FEDSCENE_BENCHMARK_RUN"  # in the environment of a contestant and of all its processes
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """What /proc/PID/stat says.

    Attributes:
        pid: The process.
        parent: Its parent.
        seconds: User and system seconds of the process and of its children that have ended.
    """

    pid: int
    parent: int
    seconds: float


def parse_stat(text: str) -> Process:
    """Return the fields of /proc/PID/stat (man proc: 1, 4, 14 to 17); the second may contain anything."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(")")[2].split()
    return Process(int(pid), int(fields[1]), sum(int(value) for value in fields[11:15]) / _TICK)


class Family:
    """A process with all its descendants, also those whose parents have ended: they carry the tag.

    Args:
        tag: Value of ``TAG`` in their environment.
    """

    def __init__(self, tag: str) -> None:
        self._marker = f"{TAG}={tag}".encode()
        self._known: dict[int, bool] = {}

    def members(self) -> list[Process]:
        """Return the processes that run now."""
        found = {process.pid: process for process in map(_read, _pids()) if process is not None}
        self._known = {pid: value for pid, value in self._known.items() if pid in found}
        for pid in found:
            if pid not in self._known:
                self._known[pid] = self._tagged(pid)
        mine = {pid for pid, tagged in self._known.items() if tagged}
        while more := {p.pid for p in found.values() if p.parent in mine} - mine:
            mine |= more
        return [found[pid] for pid in sorted(mine)]

    def cpu_seconds(self) -> float:
        """Return user and system seconds of all of them up to now, with their ended children."""
        return sum(process.seconds for process in self.members())

    def _tagged(self, pid: int) -> bool:
        try:
            return self._marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - twice as fast


def _read(pid: int) -> Process | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None
