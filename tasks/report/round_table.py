"""A round as one row: for ``rounds.csv``, the report and the terminal."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tasks.core.metric_titles import TITLES
from tasks.core.problem import primary_metric
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, completed_clients, last_evaluated, main_losses, totals
from tasks.core.summary_statistics import worst_decile

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"
# A column of the rounds: key in rounds.csv, title, format
Column = tuple[str, str, Callable[[float], str]]
# The metrics among them, by the primary metric
METRICS = {
    "macro_ap": ("macro_ap", "micro_ap", "cf1", "mean_f1", "loss"),
    "accuracy": ("accuracy", "top5_accuracy", "balanced_accuracy", "macro_f1", "loss"),
}
_SHORT = {"top5_accuracy": "top-5", "balanced_accuracy": "balanced"}  # where the title would widen the column
OTHERS: tuple[Column, ...] = (
    ("worst_client_loss", "worst decile", "{:.4f}".format),
    ("clients", "clients", "{:.0f}".format),
    ("dropped", "dropped", "{:.0f}".format),
    ("bytes_down", "MB down", lambda value: f"{value / 1e6:.2f}"),
    ("bytes_up", "MB up", lambda value: f"{value / 1e6:.2f}"),
    ("seconds", "seconds", "{:.1f}".format),
)

BRIEF = (
    "round", "macro_ap", "micro_ap", "cf1", "accuracy", "balanced_accuracy", "macro_f1", "loss", "clients", "bytes_up",
    "seconds",
)  # fmt: skip
FULL_WIDTH = 124


def columns_of(records: Sequence[RoundRecord]) -> list[Column]:
    """Return the columns that fit the rounds' kind of problem; top-5 accuracy only where it is computed."""
    metrics = last_evaluated(records).metrics
    names = [name for name in METRICS[primary_metric(metrics)] if name in metrics or name != "top5_accuracy"]
    shown: list[Column] = [(name, _SHORT.get(name, TITLES[name]), "{:.4f}".format) for name in names]
    return [("round", "round", "{:.0f}".format), *shown, *OTHERS]


def round_row(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of one round, a line of ``rounds.csv``: all global metrics, then clients and costs.

    ``score`` is the primary metric on the test set, whatever the kind of problem: macro AP or accuracy.
    """
    score = record.metrics.get(primary_metric(record.metrics))
    return {
        "round": record.round,
        **record.metrics,
        "worst_client_loss": worst_decile(main_losses(record)),
        "clients": completed_clients(record),
        "dropped": len({entry.client for entry in record.dropped}),
        **totals(record),
        **({} if score is None else {"score": score}),
    }


def round_table(records: Sequence[RoundRecord], width: int = FULL_WIDTH) -> "Table":
    """Return the rounds as a table for a terminal of ``width`` columns; the best round is bold.

    A narrow terminal gets fewer columns instead of truncated numbers.
    """
    from rich.table import Table

    table = Table(title="Rounds", title_justify="left")
    shown = [column for column in columns_of(records) if width >= FULL_WIDTH or column[0] in BRIEF]
    for _, title, _ in shown:
        table.add_column(title, justify="right", no_wrap=True)
    best = best_round(records)
    for record in records:
        table.add_row(*shown_row(round_row(record), shown), style="bold" if record.round == best else None)
    return table


def shown_row(row: Mapping[str, float], columns: Sequence[Column]) -> list[str]:
    """Format the cells of one row; a missing number is a dash."""
    return [show(row[key]) if math.isfinite(row.get(key, math.nan)) else NONE for key, _, show in columns]
