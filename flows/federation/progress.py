"""Progress of a run: shown on the command line, in a Prefect worker's log, or nowhere."""

from typing import Protocol

from tasks.core.records import RoundRecord


class Progress(Protocol):
    """Receiver of a run's progress; the command line shows it."""

    def stage(self, round_: int, name: str, clients: int) -> None:
        """Report that a stage begins."""
        ...

    def clients_done(self, count: int) -> None:
        """Report how many clients of the stage have ended, with or without an update."""
        ...

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """Report a finished round; ``found``: it was finished by an earlier run."""
        ...

    def note(self, text: str) -> None:
        """Report a note, shown on its own line."""
        ...


class Quiet:
    """Progress that is shown nowhere."""

    def stage(self, round_: int, name: str, clients: int) -> None:
        """Report that a stage begins."""

    def clients_done(self, count: int) -> None:
        """Report how many clients of the stage have ended."""

    def round_done(self, record: RoundRecord, found: bool = False) -> None:
        """Report a finished round."""

    def note(self, text: str) -> None:
        """Report a note, shown on its own line."""
