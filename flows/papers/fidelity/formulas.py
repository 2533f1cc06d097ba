"""Formulas of FMMAN's paper that cannot work as printed, as measured in our own runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.records import RoundRecord

PRINTED = "printed-average.safetensors"  # in the run's folder while it is scored


@dataclass(frozen=True)
class PrintedAverage:
    """Eq 15 as printed, in one run.

    Attributes:
        sums: For each round what the printed weights sum to.
        clients: Clients of the last average.
        metrics: Metrics of the final model, averaged with weights that sum to 1.
        printed: Metrics of the same average with the printed weights.
    """

    sums: tuple[float, ...]
    clients: int
    metrics: dict[str, float]
    printed: dict[str, float]


def printed_sum(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """What eq 15's printed weights, (loss share) * (size share), sum to; 1/N where all clients are alike."""
    loss, size = sum(losses), sum(sizes)
    return sum(a / loss * (b / size) for a, b in zip(losses, sizes, strict=True))


def last_stage(record: RoundRecord) -> list[Any]:
    """The updates of the round's last training."""
    return record.updates[max(record.updates)]


def printed_average(root: Path, records: Sequence[RoundRecord]) -> PrintedAverage:
    """Scores what the last round would have given with eq 15's printed weights.

    They are the normalised ones times their sum, so the printed average is the final model times that sum.
    """
    from tasks.evaluation.evaluate import evaluate_model

    sums = tuple(
        printed_sum([update.mean("classification") for update in updates], [update.samples for update in updates])
        for updates in map(last_stage, records)
    )
    last = records[-1].model
    with opened(root) as context:
        store = context.open_store()
        state = store.get_state(last).items()
        scaled = {name: value * sums[-1] if value.is_floating_point() else value for name, value in state}
        try:
            printed = evaluate_model(context, store.put_state(PRINTED, scaled))["metrics"]
        finally:
            store.delete(PRINTED)
    return PrintedAverage(sums, len(last_stage(records[-1])), dict(records[-1].metrics), printed)


@contextmanager
def opened(root: Path) -> Iterator[Any]:
    """The context of a finished run, with the data that it was made from; the run is locked for the duration."""
    from flows.run.find import read_run
    from flows.run.open import DataPaths, open_run
    from tasks.core.store import Store

    facts = Store(root).read_json("run.json")
    data = DataPaths(Path(facts["dataset"]), Path(facts["clients"]))
    with open_run(read_run(root), data, root.name) as run:
        yield run.context


def feature_cosines(records: Sequence[RoundRecord]) -> tuple[float, float]:
    """Mean pairwise cosine of the labels' features F in a run's first and last training, over its clients."""
    first = records[0].updates[min(records[0].updates)]
    means = [[u.mean("feature_cosine") for u in updates] for updates in (first, last_stage(records[-1]))]
    return sum(means[0]) / len(means[0]), sum(means[1]) / len(means[1])


def contrast_by_stage(records: Sequence[RoundRecord]) -> dict[int, tuple[float, float]]:
    """Stage -> least and largest mean of the contrast (eq 11, first term) over all clients and rounds."""
    found: dict[int, list[float]] = {}
    for record in records:
        for stage, updates in record.updates.items():
            found.setdefault(stage % 10, []).extend(u.mean("contrast") for u in updates if "contrast" in u.sums)
    return {stage: (min(values), max(values)) for stage, values in sorted(found.items()) if values}
