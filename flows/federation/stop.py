"""When a run ends before its last round: by a metric, the megabytes that travelled, or the time (docs/training.md).

The end by a metric or by megabytes is a function of the finished rounds, so that a resumed run ends where an
undisturbed one does. The end by time depends on the machine; ``tasks.core.run_end`` keeps it.
"""

import math
import time
from collections.abc import Sequence

from models.errors import UserError
from tasks.core.federation_settings import StopSettings
from tasks.core.records import RoundRecord
from tasks.core.round_summary import megabytes
from tasks.core.run_end import RunEnd, read_end, write_end
from tasks.core.store import Store

HOUR = 3600.0


def lower_is_better(metric: str) -> bool:
    """Return whether a metric is a loss."""
    return metric.endswith("loss")


def is_better(value: float, best: float, metric: str, min_delta: float = 0.0) -> bool:
    """Return whether a value improves on the best one by more than ``min_delta``; NaN never does."""
    gain = best - value if lower_is_better(metric) else value - best
    return gain > min_delta or (math.isnan(best) and not math.isnan(value))


def metric_reason(values: Sequence[tuple[int, float]], metric: str, stop: StopSettings) -> str | None:
    """Return why a run ends after the last of these evaluations, ``None`` if it goes on.

    Args:
        values: (round, value) of each evaluation, in order.
        metric: What the values are of.
        stop: Patience and target.
    """
    if not values:
        return None
    last_round, last = values[-1]
    if stop.target is not None and (last == stop.target or is_better(last, stop.target, metric)):
        return f"{metric} {last:.4g} in round {last_round} has reached the target {stop.target:g}"
    if stop.patience is None:
        return None
    best_at, best = values[0]
    since = 0
    for number, value in values[1:]:
        if is_better(value, best, metric, stop.min_delta):
            best_at, best, since = number, value, 0
        else:
            since += 1
    if since < stop.patience:
        return None
    than = f" by more than {stop.min_delta:g}" if stop.min_delta else ""
    word = "evaluation" if stop.patience == 1 else "evaluations"
    return f"{metric} has not become better{than} than {best:.4g} in round {best_at} for {stop.patience} {word}"


def evaluations(records: Sequence[RoundRecord], metric: str, every: int) -> list[tuple[int, float]]:
    """Return (round, value) of the evaluations that can end a run.

    Only rounds that ``evaluation.every`` names count: the last round that was once asked for was evaluated too, and a
    run that was extended must not end elsewhere than one that was long from the start.

    Raises:
        UserError: If an evaluation does not have the metric.
    """
    found = []
    for record in records:
        if record.round % every or not record.metrics:
            continue
        if metric not in record.metrics:
            known = sorted(name for name in record.metrics if name.startswith("val_"))
            raise UserError(
                "the validation images have no such metric",
                where="federation.stop.metric",
                expected=", ".join(known) or "a data set with validation images (ingest.split.val)",
                found=metric,
            )
        found.append((record.round, record.metrics[metric]))
    return found


def time_reason(seconds: float, stop: StopSettings) -> str | None:
    """Return why a run ends that has taken ``seconds``, ``None`` if it goes on."""
    if stop.max_hours is None or seconds < stop.max_hours * HOUR:
        return None
    return f"{seconds / HOUR:.3g} hours are over, the limit is {stop.max_hours:g}"


def traffic_reason(records: Sequence[RoundRecord], stop: StopSettings) -> str | None:
    """Return why a run ends that has sent and received the weights of these rounds, ``None`` if it goes on."""
    total = sum(megabytes(record) for record in records)
    if stop.max_mb is None or total < stop.max_mb:
        return None
    return f"{total:.4g} MB have travelled, the limit is {stop.max_mb:g}"


def stop_reason(
    records: Sequence[RoundRecord], stop: StopSettings, metric: str, every: int, seconds: float
) -> str | None:
    """Return why a run ends after the last of these rounds, ``None`` if it goes on.

    Args:
        records: All rounds so far.
        stop: ``federation.stop``.
        metric: The metric of the validation images, ``stop.metric`` or the default.
        every: ``evaluation.every``.
        seconds: Time that the run has taken, all sittings together.
    """
    if not records:
        return None
    if stop.by_metric and records[-1].round % every == 0:
        reason = metric_reason(evaluations(records, metric, every), metric, stop)
        if reason is not None:
            return reason
    return traffic_reason(records, stop) or time_reason(seconds, stop)


def reached_end(
    records: Sequence[RoundRecord], stop: StopSettings, metric: str, every: int, kept: RunEnd | None
) -> RunEnd | None:
    """Return the end that the finished rounds of earlier processes have reached, ``None`` if the run goes on.

    Args:
        records: The finished rounds.
        stop: ``federation.stop``.
        metric: As for ``stop_reason``.
        every: As for ``stop_reason``.
        kept: The end that an earlier process recorded. It counts while the settings are those that it was reached with.
    """
    settings = stop.model_dump(mode="json")
    if kept is not None and kept.stop == settings and kept.round <= len(records):
        return kept
    for count in range(1, len(records) + 1):
        reason = stop_reason(records[:count], stop, metric, every, seconds=0.0)
        if reason is not None:
            return RunEnd(count, reason, settings)
    return None


class EndWatch:
    """Says after each round whether the run ends, and keeps why.

    Args:
        stop: ``federation.stop``.
        main_metric: The main metric of the kind of problem, without ``val_``.
        every: ``evaluation.every``.
        store: The run's store.
    """

    def __init__(self, stop: StopSettings, main_metric: str, every: int, store: Store) -> None:
        self.stop, self.every, self.store = stop, every, store
        self.metric = stop.metric or f"val_{main_metric}"
        self.started, self.before = time.monotonic(), 0.0

    def found(self, records: Sequence[RoundRecord]) -> RunEnd | None:
        """Return the end that earlier processes have reached; forget one that was reached with other settings.

        Args:
            records: The finished rounds.
        """
        self.before = math.fsum(stage.seconds for record in records for stage in record.stages)
        kept = read_end(self.store)
        end = reached_end(records, self.stop, self.metric, self.every, kept)
        if end is not None:
            self._keep(end, kept)
        elif kept is not None and kept.stop != self.stop.model_dump(mode="json"):
            write_end(self.store, None)
        return end

    def after(self, records: Sequence[RoundRecord]) -> RunEnd | None:
        """Return the end if the run ends after the last of these rounds."""
        seconds = self.before + time.monotonic() - self.started
        reason = stop_reason(records, self.stop, self.metric, self.every, seconds)
        if reason is None:
            return None
        end = RunEnd(records[-1].round, reason, self.stop.model_dump(mode="json"))
        self._keep(end, None)
        return end

    def _keep(self, end: RunEnd, kept: RunEnd | None) -> None:
        """Write the end, unless it is the one that is written."""
        if end != kept:
            write_end(self.store, end)
