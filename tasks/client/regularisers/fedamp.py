"""FedAMP's proximal term around a client's cloud model (Huang et al., AAAI 2021; docs/algorithms/fedamp.md)."""

from collections.abc import Mapping

from tasks.client.regularisers import Regulariser, RegulariserContext
from tasks.client.regularisers.fedprox import Prox, trainable

DESCRIPTION = "FedAMP: (lambda / 2 alpha) |theta - u_i|^2 to the client's cloud model"


class ToCloudModel(Prox):
    """The proximal term around the reference model that the server sent, wherever training starts."""

    def __init__(self, local: RegulariserContext) -> None:
        assert local.references, "FedAMP's round sends the client's cloud model"
        parameters, cloud = trainable(local.model), dict(local.references[0].model.named_parameters())
        self.mu, self.parameters = local.values["mu"], list(parameters.values())
        self.received = [cloud[name].detach() for name in parameters]


def needs_reference(values: Mapping[str, float]) -> bool:
    """Return whether the client needs its cloud model: yes, unless mu is 0."""
    return values["mu"] > 0


def make(local: RegulariserContext) -> Regulariser:
    """Return the regulariser of one client; with ``mu`` 0 the neutral one."""
    return ToCloudModel(local) if local.values["mu"] else Regulariser()
