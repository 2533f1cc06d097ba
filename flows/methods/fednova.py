"""FedNova, normalised averaging: Wang et al., NeurIPS 2020, eq 8; docs/algorithms/fednova.md."""

from typing import TYPE_CHECKING

from models.base_settings import Section
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedNova: averages each client's change per step (Wang et al., NeurIPS 2020)"


class Settings(Section):
    """FedNova has no settings: the steps come with the updates, the momentum is that of the local loop."""


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """Train the sampled clients, then step to W - (sum p_i a_i) sum p_i (W - theta_i) / a_i."""
    clients = fed.sample()
    updates = fed.train(clients, start, stage=1, name="local training")
    samples, steps = [u.samples for u in updates], [u.steps for u in updates]
    model: ModelRef = fed.server_task(
        "fednova-average", [u.model for u in updates], samples, steps, start, name="normalised average"
    )
    fed.record.weights = {u.client: u.samples / sum(samples) for u in updates}
    return model
