"""A round as one row: for ``rounds.csv``, the report and the terminal."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, completed_clients, main_losses, totals
from tasks.core.summary_statistics import worst_decile

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"
# The columns of a round: key in rounds.csv, title, format
Column = tuple[str, str, Callable[[float], str]]
COLUMNS: tuple[Column, ...] = (
    ("round", "round", "{:.0f}".format),
    ("macro_ap", "macro AP", "{:.4f}".format),
    ("micro_ap", "micro AP", "{:.4f}".format),
    ("cf1", "CF1", "{:.4f}".format),
    ("mean_f1", "mean F1", "{:.4f}".format),
    ("loss", "loss", "{:.4f}".format),
    ("worst_client_loss", "worst decile", "{:.4f}".format),
    ("clients", "clients", "{:.0f}".format),
    ("dropped", "dropped", "{:.0f}".format),
    ("bytes_down", "MB down", lambda value: f"{value / 1e6:.2f}"),
    ("bytes_up", "MB up", lambda value: f"{value / 1e6:.2f}"),
    ("seconds", "seconds", "{:.1f}".format),
)

BRIEF = ("round", "macro_ap", "micro_ap", "cf1", "loss", "clients", "bytes_up", "seconds")
FULL_WIDTH = 124


def round_row(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of one round, a line of ``rounds.csv``: all global metrics, then clients and costs."""
    return {
        "round": record.round,
        **record.metrics,
        "worst_client_loss": worst_decile(main_losses(record)),
        "clients": completed_clients(record),
        "dropped": len({entry.client for entry in record.dropped}),
        **totals(record),
    }


def round_table(records: Sequence[RoundRecord], width: int = FULL_WIDTH) -> "Table":
    """Return the rounds as a table for a terminal of ``width`` columns; the best round is bold.

    A narrow terminal gets fewer columns instead of truncated numbers.
    """
    from rich.table import Table

    table = Table(title="Rounds", title_justify="left")
    shown = [column for column in COLUMNS if width >= FULL_WIDTH or column[0] in BRIEF]
    for _, title, _ in shown:
        table.add_column(title, justify="right", no_wrap=True)
    best = best_round(records)
    for record in records:
        table.add_row(*shown_row(round_row(record), shown), style="bold" if record.round == best else None)
    return table


def shown_row(row: Mapping[str, float], columns: Sequence[Column] = COLUMNS) -> list[str]:
    """Format the cells of one row; a missing number is a dash."""
    return [show(row[key]) if math.isfinite(row.get(key, math.nan)) else NONE for key, _, show in columns]
