"""Formulas of FMMAN's paper that cannot work as printed, measured in finished runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.core.records import RoundRecord, Update
from tasks.core.round_state import RoundState
from tasks.core.store import Store


@dataclass(frozen=True)
class PrintedAverage:
    """Eq 15 as printed, in one run.

    Attributes:
        sums: Sum of the printed weights in each round.
        clients: Clients of the last average.
        metrics: Metrics of the final model, averaged with weights that sum to 1.
        printed: Metrics of the same average with the printed weights.
    """

    sums: tuple[float, ...]
    clients: int
    metrics: dict[str, float]
    printed: dict[str, float]


def printed_sum(losses: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the sum of eq 15's printed weights, (loss share) * (size share); 1/N if all clients are alike."""
    loss, size = sum(losses), sum(sizes)
    return sum(a / loss * (b / size) for a, b in zip(losses, sizes, strict=True))


def last_updates(record: RoundRecord) -> list[Update]:
    """Return the updates of the round's last training."""
    return record.updates[max(record.updates)]


def printed_average(root: Path, records: Sequence[RoundRecord]) -> PrintedAverage:
    """Evaluate what the last round would have given with eq 15's printed weights.

    They are the normalised weights times their sum, so the printed average is the final model times that sum.
    Nothing is written to the run's folder.
    """
    from flows.run.open import read_context
    from tasks.evaluation.evaluate import evaluate_model

    sums = tuple(
        printed_sum([update.mean("classification") for update in updates], [update.samples for update in updates])
        for updates in map(last_updates, records)
    )
    last, context = records[-1].model, read_context(root)
    store = context.open_store()
    scaled = {
        name: value * sums[-1] if value.is_floating_point() else value for name, value in store.get_state(last).items()
    }
    with TemporaryDirectory(prefix="fedscene-") as folder:
        scratch = Store(folder)
        if context.tables is not None:
            scratch.put_state(context.tables.uri, store.get_state(context.tables))
        model = scratch.put_state("model.safetensors", scaled)
        state = RoundState.starting_from(model)
        printed = evaluate_model(replace(context, store=folder), state)["metrics"]
    return PrintedAverage(sums, len(last_updates(records[-1])), dict(records[-1].metrics), printed)


def feature_cosines(records: Sequence[RoundRecord]) -> tuple[float, float]:
    """Return the mean pairwise cosine of the label features F in a run's first and last training, over its clients."""
    first = records[0].updates[min(records[0].updates)]
    means = [[u.mean("feature_cosine") for u in updates] for updates in (first, last_updates(records[-1]))]
    return sum(means[0]) / len(means[0]), sum(means[1]) / len(means[1])


def contrast_by_stage(records: Sequence[RoundRecord]) -> dict[int, tuple[float, float]]:
    """Return stage -> smallest and largest mean of the contrastive term (eq 11) over all clients and rounds."""
    found: dict[int, list[float]] = {}
    for record in records:
        for stage, updates in record.updates.items():
            found.setdefault(stage % 10, []).extend(u.mean("contrast") for u in updates if "contrast" in u.sums)
    return {stage: (min(values), max(values)) for stage, values in sorted(found.items()) if values}
