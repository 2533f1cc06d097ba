"""What our runs say of a benchmark's claims: text of what was measured, and the verdict."""

import math
import statistics
from collections.abc import Mapping, Sequence

from flows.papers.benchmark.cell_run import CellRun
from flows.papers.benchmark.curves import STATISTICS, rounds_until
from flows.papers.benchmark.schema import Benchmark, Claim, Difference, FewerRounds, Level, Paired
from flows.papers.fidelity.evaluate_claims import Verdict, compare_pairs
from tasks.core.summary_statistics import mean_and_std

Pairs = Sequence[tuple[CellRun, CellRun]]  # runs of a claim's two rows with the same seed


def judge(benchmark: Benchmark, scale: str, finished: Mapping[str, Sequence[CellRun]], claim: Claim) -> tuple[str, str]:
    """Return what we measured for a claim, and whether it holds.

    Args:
        benchmark: The file.
        scale: small or full.
        finished: The finished runs of the claim's rows.
        claim: The claim.
    """
    if any(benchmark.rows[row].not_yet is not None for row in claim.rows):
        return "-", "not yet available"
    if isinstance(claim, Level):
        return _level(claim, finished[claim.row])
    first, second = ({run.seed: run for run in finished[row]} for row in claim.rows)
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    judged_at_small = isinstance(claim, Paired)  # an ordering on our own images, not a published level
    if not pairs or (scale == "small" and not judged_at_small):
        return "-", "not run yet"
    if isinstance(claim, Difference):
        picks = [benchmark.protocols[benchmark.rows[row].protocol].pick for row in claim.rows]
        return _difference(claim, pairs, picks)
    return _rounds(claim, pairs) if isinstance(claim, FewerRounds) else _paired(claim, pairs)


def _difference(claim: Difference, pairs: Pairs, picks: Sequence[str]) -> tuple[str, str]:
    mean, std = mean_and_std([first.value(picks[0]) - second.value(picks[1]) for first, second in pairs])
    spread = "" if std is None else f" +/- {std:.2f}"
    text = f"{mean:+.2f}{spread} ({len(pairs)} seed{'s' if len(pairs) > 1 else ''})"
    return text, "holds" if mean >= claim.at_least else "does not hold"


def _rounds(claim: FewerRounds, pairs: Pairs) -> tuple[str, str]:
    """Compare the median rounds at which both reach what the slower row has after ``target_round`` rounds."""
    first: list[float] = []
    second: list[float] = []
    for faster, slower in pairs:
        reached = [value for value in slower.curve[: claim.target_round] if math.isfinite(value)]
        if not reached:
            continue
        for rounds, run in ((first, faster), (second, slower)):
            found = rounds_until(run.curve, max(reached))
            rounds.append(math.inf if math.isnan(found) else found)
    if not first:
        return "-", f"not evaluated up to round {claim.target_round}"
    ours, theirs = statistics.median(first), statistics.median(second)
    text = f"{ours:g} against {theirs:g} rounds, ratio {ours / theirs:.2f} ({len(first)} seeds)"
    return text, "holds" if ours / theirs <= claim.at_most else "does not hold"


def _paired(claim: Paired, pairs: Pairs) -> tuple[str, str]:
    """Compare a statistic seed by seed; the difference counts in the direction of the claim."""
    statistic = STATISTICS[claim.statistic]
    sign = -1.0 if claim.lower else 1.0
    first, second = (
        [sign * statistic(run.metric(claim.metric_of(row))) for run in runs]
        for row, runs in zip(claim.rows, zip(*pairs, strict=True), strict=True)
    )
    verdict = compare_pairs([value + claim.margin for value in first], second)
    if not verdict.differences:
        return "-", "not evaluated"
    outcome: str = verdict.outcome
    if claim.equal:
        outcome = "does not hold" if any(verdict.differences) else "holds"
    return _interval(verdict, sign, -claim.margin), outcome


def _level(claim: Level, runs: Sequence[CellRun]) -> tuple[str, str]:
    """Compare a statistic of one row with a value; the difference counts in the direction of the claim."""
    statistic, sign = STATISTICS[claim.statistic], -1.0 if claim.lower else 1.0
    values = [sign * statistic(run.metric(claim.metric)) for run in runs]
    verdict = compare_pairs(values, [sign * claim.value] * len(values))
    if not verdict.differences:
        return "-", "not evaluated" if runs else "not run yet"
    return _interval(verdict, sign, sign * claim.value), verdict.outcome


def _interval(verdict: Verdict, sign: float, shift: float) -> str:
    """Return the mean with its interval and the number of seeds, moved by ``shift`` and turned by ``sign``."""
    ends = sorted(sign * (end + shift) for end in (verdict.low, verdict.high))
    interval = f" [{ends[0]:+.2f}, {ends[1]:+.2f}]" if math.isfinite(ends[0]) else ""
    count = len(verdict.differences)
    return f"{sign * (verdict.mean + shift):+.2f}{interval} ({count} seed{'s' if count > 1 else ''})"
