"""Who is told how far a run is: the command line, a Prefect worker's log, or nobody."""

from typing import Protocol

from tasks.core.records import RoundRecord


class Progress(Protocol):
    """Told about what is going on; the command line draws it."""

    def stage(self, round_: int, name: str, clients: int) -> None:
        """A stage begins."""
        ...

    def clients_done(self, count: int) -> None:
        """So many clients of the stage have ended, whether or not they answered."""
        ...

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """A round is finished; ``found`` when it was there already."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        ...


class Quiet:
    """Says nothing."""

    def stage(self, round_: int, name: str, clients: int) -> None:
        """A stage begins."""

    def clients_done(self, count: int) -> None:
        """So many clients of the stage have ended."""

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """A round is finished."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
