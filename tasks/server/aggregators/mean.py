"""The weighted mean: FedAvg (McMahan et al., AISTATS 2017, algorithm 1; docs/algorithms/aggregation.md)."""

from models.settings.section import Section
from tasks.server.aggregators import Aggregator

DESCRIPTION = "the weighted mean: FedAvg's server (McMahan et al., AISTATS 2017)"


class Settings(Section):
    """The mean has no settings: the weights are the method's."""


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    del settings
    return Aggregator()
