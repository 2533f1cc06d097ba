"""Multi-Krum: the mean of the updates with the best Krum scores (Blanchard et al., NeurIPS 2017).

docs/algorithms/aggregation.md.
"""

from pydantic import Field

from tasks.server.aggregators import Aggregator, krum

DESCRIPTION = "the mean of the models nearest to their neighbours (Multi-Krum; Blanchard et al., NeurIPS 2017)"
USES_WEIGHTS = False


class Settings(krum.Settings):
    """How many attackers are expected and how many updates are averaged."""

    selected: int | None = Field(
        None, ge=1, description="Updates that are averaged; null: all but f. 1 is Krum, all is the unweighted mean."
    )


def check(settings: Settings, participants: int | None) -> None:
    """Require 2 f + 3 participants, and as many as are selected.

    Raises:
        ValueError: If there are fewer.
    """
    if participants is None:
        return
    krum.require_enough("multi_krum", settings.byzantine, participants)
    if settings.selected is not None and settings.selected > participants:
        raise ValueError(
            f"aggregation.multi_krum.selected is {settings.selected}, but only {participants} clients take part"
        )


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return krum.Krum("multi_krum", settings.byzantine, settings.selected)
