"""Krum: the update nearest to its neighbours (Blanchard et al., NeurIPS 2017; docs/algorithms/aggregation.md)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Mixing

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "the one model nearest to its neighbours (Krum; Blanchard et al., NeurIPS 2017)"
USES_WEIGHTS = False


class Settings(Section):
    """How many attackers are expected."""

    byzantine: int = Field(1, ge=0, description="Attackers f among a round's updates; needs at least 2 f + 3 updates.")


def squared_distances(blocks: "Iterable[Tensor]", n: int) -> "Tensor":
    """Return all squared distances between n points.

    Args:
        blocks: The points, float64 [n, P] for one range of coordinates after the other, near 0.
        n: Number of points.

    Returns:
        float64 [n, n], by |x|^2 + |y|^2 - 2 x.y.
    """
    import torch

    gram = torch.zeros(n, n, dtype=torch.float64)
    for block in blocks:
        gram += block @ block.T
    squares = gram.diagonal()
    distances = squares[:, None] + squares[None, :] - (gram + gram.T)
    return distances.clamp_(min=0).fill_diagonal_(0)


def krum_scores(distances: "Tensor", byzantine: int) -> "Tensor":
    """Return s(i): the sum of the n - f - 2 smallest squared distances of update i to others.

    Args:
        distances: Squared, [n, n].
        byzantine: f; n must be at least 2 f + 3.

    Returns:
        [n].
    """
    import torch

    n = len(distances)
    others = distances.masked_fill(torch.eye(n, dtype=torch.bool), torch.inf)
    return others.sort(dim=1).values[:, : n - byzantine - 2].sum(1)


def require_enough(name: str, byzantine: int, updates: int) -> None:
    """Refuse too few updates.

    Raises:
        ValueError: If there are less than 2 f + 3.
    """
    if updates < 2 * byzantine + 3:
        raise ValueError(
            f"aggregation.{name}.byzantine {byzantine} needs at least {2 * byzantine + 3} (2 f + 3) updates a round, "
            f"found {updates}"
        )


class Krum(Aggregator):
    """The mean of the ``selected`` updates with the lowest scores, unweighted; all their tensors.

    Args:
        name: Name of the aggregator, for messages.
        byzantine: f.
        selected: How many updates are averaged; ``None``: n - f.
    """

    def __init__(self, name: str, byzantine: int, selected: int | None) -> None:
        self.name, self.byzantine, self.selected = name, byzantine, selected

    def weigh(self, received: "Received") -> Mixing:
        """Return equal weights for the selected updates, 0 for the others; of equal scores the first client's.

        Raises:
            UserError: If too few clients reported.
        """
        import torch

        n = len(received.updates)
        try:
            require_enough(self.name, self.byzantine, n)
        except ValueError as error:
            raise UserError(str(error), where="aggregation", hint="raise federation.quorum") from error
        selected = n - self.byzantine if self.selected is None else self.selected
        if selected > n:
            raise UserError("more updates are to be selected than there are", where="aggregation", found=n)
        scores = krum_scores(squared_distances(received.parameters(), n), self.byzantine)
        best = set(torch.sort(scores, stable=True).indices[:selected].tolist())
        return Mixing(("global",), ([1 / selected if i in best else 0.0 for i in range(n)],))


def check(settings: Settings, participants: int | None) -> None:
    """Require 2 f + 3 participants.

    Raises:
        ValueError: If there are fewer.
    """
    if participants is not None:
        require_enough("krum", settings.byzantine, participants)


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Krum("krum", settings.byzantine, 1)
