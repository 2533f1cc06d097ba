"""FedNova, normalised averaging: Wang et al., NeurIPS 2020, eq 8; specification 4.10."""

from typing import TYPE_CHECKING

from models.base_settings import Section
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

TITLE = "FedNova: averages each client's change per step (Wang et al., NeurIPS 2020)"


class Settings(Section):
    """FedNova has nothing to set: the steps come with the updates, the momentum is that of the local loop."""


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: local training, then W - (sum p_i a_i) sum p_i (W - theta_i) / a_i."""
    clients = fed.sample()
    updates = fed.train(clients, start, stage=1, name="local training", references=[start])
    samples, steps = [u.samples for u in updates], [u.steps for u in updates]
    model: ModelRef = fed.server_task(
        "nova-average", [u.model for u in updates], samples, steps, start, name="normalised average"
    )
    fed.record.weights = {u.client: u.samples / sum(samples) for u in updates}
    return model
