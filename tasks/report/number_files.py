"""The numbers of a report as files: the metrics for DVC, a line per round, the counts of the confusion matrix."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from models.files import remove, write_text
from tasks.core.problem import primary_metric
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, best_score, last_evaluated, totals
from tasks.evaluation.client_summary import PROTOCOLS
from tasks.report.round_table import round_row

CONFUSION = "confusion.csv"
# By the primary metric: what metrics.json has of the last evaluated round
MAIN_METRICS = {
    "macro_ap": ("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1", "loss", "mean_prevalence", "val_macro_ap"),
    "accuracy": ("accuracy", "top5_accuracy", "balanced_accuracy", "macro_precision", "macro_recall", "macro_f1",
                 "loss", "val_accuracy"),
}  # fmt: skip


def main_metrics(records: Sequence[RoundRecord]) -> dict[str, float | None]:
    """Return the metrics for DVC: the last evaluated round's, the best round, the traffic. NaN is null in JSON.

    All others are in ``rounds.csv``; seconds are omitted, as they differ in every run.
    """
    best = best_round(records)
    last = last_evaluated(records).metrics
    main = primary_metric(last)
    clients = [f"{name}/{main}/{key}" for name in PROTOCOLS for key in ("mean", "std", "p10", "worst_decile", "worst")]
    flat: dict[str, float] = {key: last[key] for key in (*MAIN_METRICS[main], *clients) if key in last}
    flat["rounds"] = len(records)
    flat["best_round"] = best
    flat["best_score"] = next(best_score(record) for record in records if record.round == best)
    for key in ("bytes_down", "bytes_up"):
        flat[f"all_rounds_{key}"] = sum(totals(record)[key] for record in records)
    return {key: number if math.isfinite(number) else None for key, number in flat.items()}


def write_rounds(path: Path, records: Sequence[RoundRecord]) -> None:
    """Write a line per round with all its numbers; an undefined one is empty."""
    rows = [round_row(record) for record in records]
    longest_first = sorted(rows, key=len, reverse=True)  # a round without evaluation must not decide the order
    fields = list(dict.fromkeys(key for row in longest_first for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: value if math.isfinite(value) else "" for key, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def write_confusion(path: Path, record: RoundRecord, classes: Sequence[str]) -> list[Path]:
    """Write the counts of the confusion matrix, a row per class; return the file, none for multi-label data."""
    remove(path)  # of an earlier report that no longer applies
    if not record.confusion:
        return []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["class", *classes])
    writer.writerows([name, *row] for name, row in zip(classes, record.confusion, strict=True))
    write_text(path, text.getvalue())
    return [path]
