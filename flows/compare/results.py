"""A comparison of finished runs: runs that differ in the seed alone are one row."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from flows.compare.runs import ComparedRun
from tasks.core.names import metric_parts, visible_name
from tasks.core.problem import load_problem
from tasks.core.round_summary import protocol_quality, protocols_of, totals
from tasks.core.store import digest_of
from tasks.core.summary_statistics import mean_and_std
from tasks.report.round_table import METRICS

STATISTICS = ("mean", "std", "worst_decile", "worst", "best", "count")
COSTS = ("bytes_down", "bytes_up", "seconds")
_LABEL_SETTINGS = 3  # more differences do not fit a row's name
Figure = tuple[float, float | None]  # mean and standard deviation over the seeds


@dataclass
class Group:
    """Runs with the same settings, one per seed.

    Attributes:
        name: What tells the row from the others: the method, and settings where the method does not.
        runs: The runs.
        settings: What decides their results, dotted name -> value.
    """

    name: str
    runs: list[ComparedRun]
    settings: dict[str, Any]

    @property
    def seeds(self) -> list[int]:
        """Their seeds, in order."""
        return sorted(run.seed for run in self.runs)

    @property
    def rounds(self) -> list[int]:
        """The numbers of their last evaluated rounds, each once."""
        return sorted({run.last.round for run in self.runs})

    def metric(self, name: str) -> Figure:
        """Return a metric after the last round over the seeds; NaN where a run does not have it."""
        return _over_seeds(self.runs, lambda run: run.last.metrics.get(name, math.nan))

    def cost(self, name: str) -> Figure:
        """Return bytes or seconds of all rounds over the seeds."""
        return _over_seeds(self.runs, lambda run: sum(totals(record)[name] for record in run.records))

    def clients(self, protocol: str) -> dict[str, float]:
        """Return client -> its metric by a protocol, the mean over the seeds in which it has a value."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            for client, value in protocol_quality(run.last, protocol).items():
                found.setdefault(client, []).append(value)
        return {client: fmean(values) for client, values in sorted(found.items())}


def _over_seeds(runs: Sequence[ComparedRun], value: Callable[[ComparedRun], float]) -> Figure:
    values = [float(value(run)) for run in runs]
    return mean_and_std(values) if all(map(math.isfinite, values)) else (math.nan, None)


@dataclass
class Comparison:
    """Groups of runs side by side.

    Attributes:
        groups: The groups, in the order in which their first runs were named.
        refused: Run -> why it is not compared.
        metric: What clients are compared by: ``macro_ap`` or ``accuracy``.
        metrics: The main metrics of the pooled test images.
        protocols: The protocols by which clients were evaluated.
        notes: What a reader must know of the figures.
    """

    groups: list[Group]
    refused: dict[str, str] = field(default_factory=dict)
    metric: str = "macro_ap"
    metrics: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def differences(self) -> dict[str, list[Any]]:
        """Dotted name of a setting that differs -> its value in each group; ``None`` where a group does not have it."""
        keys = dict.fromkeys(key for group in self.groups for key in group.settings)
        found = {key: [group.settings.get(key) for group in self.groups] for key in keys}
        differing = {key: values for key, values in found.items() if any(value != values[0] for value in values)}
        return dict(sorted(differing.items(), key=lambda item: item[0] != "method.name"))

    def statistic(self, group: Group, protocol: str, name: str) -> Figure:
        """Return a statistic over clients of a group."""
        return group.metric(f"{protocol}/{self.metric}/{name}")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: all figures as mean and standard deviation over the seeds."""
        names = [group.name for group in self.groups]
        return {
            "metric": self.metric,
            "groups": [self._group(group) for group in self.groups],
            "settings": {key: dict(zip(names, values, strict=True)) for key, values in self.differences.items()},
            "not_compared": self.refused,
            "notes": self.notes,
        }

    def _group(self, group: Group) -> dict[str, Any]:
        return {
            "name": group.name,
            "runs": [run.id for run in group.runs],
            "seeds": group.seeds,
            "rounds": group.rounds,
            "metrics": {name: _figure(group.metric(name)) for name in self.metrics},
            "protocols": {
                protocol: {name: _figure(self.statistic(group, protocol, name)) for name in STATISTICS}
                for protocol in self.protocols
            },
            "clients": {protocol: group.clients(protocol) for protocol in self.protocols},
            **{name: _figure(group.cost(name)) for name in COSTS},
        }

    def numbers(self) -> dict[str, float]:
        """Return the figures under names that MLflow accepts: ``<row>/<metric>``, ``<row>/<protocol>/<statistic>``."""
        out: dict[str, float] = {}
        parts = metric_parts(group.name for group in self.groups)
        for group in self.groups:
            figures = {name: group.metric(name) for name in self.metrics} | {name: group.cost(name) for name in COSTS}
            for protocol in self.protocols:
                figures |= {f"{protocol}/{name}": self.statistic(group, protocol, name) for name in STATISTICS}
            for name, (mean, std) in figures.items():
                out |= {f"{parts[group.name]}/{name}": mean} if math.isfinite(mean) else {}
                out |= {f"{parts[group.name]}/{name}_std": std} if std is not None else {}
        return out


def _figure(figure: Figure) -> dict[str, float | None]:
    return {"mean": figure[0], "std": figure[1]}


def compare(runs: Sequence[ComparedRun], refused: Mapping[str, str] | None = None) -> Comparison:
    """Return the comparison of runs that fit each other.

    Args:
        runs: At least two runs.
        refused: Run -> why it is not compared.
    """
    groups = _grouped(runs)
    metric = load_problem(runs[0].kind).primary_metric
    present = {name for run in runs for name in run.last.metrics}
    return Comparison(
        groups,
        dict(refused or {}),
        metric,
        tuple(name for name in METRICS[metric] if name in present),
        tuple(dict.fromkeys(protocol for run in runs for protocol in protocols_of(run.last))),
        _notes(groups),
    )


def _grouped(runs: Sequence[ComparedRun]) -> list[Group]:
    """Return the runs by settings; a second run of a seed, which other code made, begins another group."""
    groups: list[Group] = []
    for run in runs:
        own = run.deciding
        key = digest_of(own)
        fitting = [g for g in groups if digest_of(g.settings) == key and run.seed not in g.seeds]
        if fitting:
            fitting[0].runs.append(run)
        else:
            groups.append(Group("", [run], own))
    for group in groups:
        group.runs.sort(key=lambda run: run.seed)
    for group, name in zip(groups, _names(groups), strict=True):
        group.name = name
    return groups


def _names(groups: Sequence[Group]) -> list[str]:
    """Return a name for each group: its method, then what tells it from the others of that method, else a run's id."""
    methods = [str(group.settings["method.name"]) for group in groups]
    names = []
    for group, method in zip(groups, methods, strict=True):
        alike = [other for other, name in zip(groups, methods, strict=True) if name == method]
        keys = dict.fromkeys(key for other in alike for key in other.settings)
        differing = [key for key in keys if len({repr(other.settings.get(key)) for other in alike}) > 1]
        short = [f"{key.rpartition('.')[2]}={group.settings.get(key)}" for key in differing]
        own = short if len(differing) <= _LABEL_SETTINGS else [visible_name(group.runs[0].id)]
        names.append(", ".join([method, *own]))
    return [
        name if names.count(name) == 1 else f"{name}, {visible_name(group.runs[0].id)}"
        for name, group in zip(names, groups, strict=True)
    ]


def _notes(groups: Sequence[Group]) -> list[str]:
    """Return what keeps a difference from meaning much."""
    notes = []
    if len({tuple(group.seeds) for group in groups}) > 1:
        seeds = "; ".join(f"{group.name}: {', '.join(map(str, group.seeds))}" for group in groups)
        notes.append(f"the rows have different seeds ({seeds}), so part of a difference comes from other images")
    elif all(len(group.seeds) == 1 for group in groups):
        notes.append("one seed: a difference may be chance; repeat the runs with other values of seed")
    if len({tuple(group.rounds) for group in groups}) > 1:
        notes.append("the rows have different numbers of rounds")
    if len({run.code.rpartition(" ")[2] for group in groups for run in group.runs}) > 1:
        notes.append("the runs were made by different versions of the code")
    return notes
