"""Which aggregator combines a round's updates: a plain record, part of the run's context."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AggregatorSpec:
    """An aggregator and its settings, as a round asks for it.

    Attributes:
        name: One of ``tasks.server.aggregators.AGGREGATORS``, or the dotted path of a module that is an aggregator.
        values: Its settings as plain values; the module's ``Settings`` validates them.
    """

    name: str = "mean"
    values: Mapping[str, Any] = field(default_factory=dict)
