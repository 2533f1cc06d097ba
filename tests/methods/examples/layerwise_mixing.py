"""N models from N updates: the backbone mixed with the others', everything else the client's own."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.core.round_state import client_model
from tasks.server.aggregators import Aggregator, Mixing

if TYPE_CHECKING:
    from tasks.server.aggregators.received import Received

DESCRIPTION = "example: N x N mixing of the backbone"


class Settings(Section):
    """How much comes from the others."""

    share: float = Field(0.5, ge=0, le=1, description="Weight of the others together.")


class LayerwiseMixing(Aggregator):
    """Rows of the identity, and for the backbone (1 - share) of it plus share / (N - 1) elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self.share = settings.share

    def weigh(self, received: "Received") -> Mixing:
        """Return one model per client."""
        count = len(received.updates)
        own = [[float(i == j) for j in range(count)] for i in range(count)]
        others = self.share / max(1, count - 1)
        mixed = [[1 - self.share if i == j else others for j in range(count)] for i in range(count)]
        names = tuple(client_model(update.client) for update in received.updates)
        return Mixing(names, own, {"backbone.": mixed} if count > 1 else {})


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return LayerwiseMixing(settings)
