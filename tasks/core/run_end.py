"""Why a run ended before its last round: ``stopped.json`` in its folder."""

from dataclasses import asdict, dataclass
from typing import Any

from models.errors import UserError
from tasks.core.records import VERSION
from tasks.core.store import Store

FILE = "stopped.json"


@dataclass(frozen=True)
class RunEnd:
    """The end of a run.

    Attributes:
        round: The last round.
        reason: Why, in one line.
        stop: The settings ``federation.stop`` that ended it, as plain values.
    """

    round: int
    reason: str
    stop: dict[str, Any]


def write_end(store: Store, end: RunEnd | None) -> None:
    """Write why the run has ended; ``None``: it has not."""
    if end is None:
        store.delete(FILE)
    else:
        store.write_json(FILE, {"version": VERSION, **asdict(end)})


def read_end(store: Store) -> RunEnd | None:
    """Return why the run has ended, ``None`` if it was not stopped.

    Raises:
        UserError: If the file is not one that ``write_end`` wrote.
    """
    if not store.exists(FILE):
        return None
    value = store.read_json(FILE)
    number, reason, stop = (value.get(key) for key in ("round", "reason", "stop"))
    if not (type(number) is int and number > 0 and isinstance(reason, str) and isinstance(stop, dict)):
        raise UserError(
            "the record of the run's end is damaged",
            where=store.path(FILE),
            expected="round, reason and stop",
            hint="remove the file: the run is then stopped by its metrics, or trains on",
        )
    return RunEnd(number, reason, stop)
