"""Ditto's term of a personal model (Li et al., ICML 2021, eq 2; docs/algorithms/ditto.md)."""

from collections.abc import Mapping

from tasks.client.regularisers import Regulariser, RegulariserContext
from tasks.client.regularisers.fedprox import Prox, trainable

DESCRIPTION = "Ditto: (lambda/2) |v - W|^2 of a personal model v to the global model received this round"


class Ditto(Prox):
    """The proximal term around the global model, wherever the personal one starts from."""

    def __init__(self, local: RegulariserContext) -> None:
        assert local.references, "Ditto's personal models stay near the global one, which the round sends"
        self.mu, parameters = local.values["lam"], trainable(local.model)
        received = dict(local.references[0].model.named_parameters())
        self.parameters = list(parameters.values())
        self.received = [received[name].detach() for name in parameters]


def needs_reference(values: Mapping[str, float]) -> bool:
    """Return whether the client needs the global model: yes, unless lambda is 0."""
    return values["lam"] > 0


def make(local: RegulariserContext) -> Regulariser:
    """Return the regulariser of one client; with ``lam`` 0 the neutral one, so that training is local bit for bit."""
    return Ditto(local) if local.values["lam"] else Regulariser()
