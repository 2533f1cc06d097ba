"""XueSGCN's round: MiLab-HITSZ/2023XueSGCN, IJCNN 2024; specification 4.7. Made for the network xuesgcn."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from models.registry import NETWORKS
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

TITLE = "XueSGCN: average by size, lend label counts between similar scenes (MiLab-HITSZ/2023XueSGCN, IJCNN 2024)"


class Settings(Section):
    """Whose the scenes are; their number is set under ``model.xuesgcn``, their loss under ``objective.asl``."""

    scene_shared: bool = Field(
        False,
        description="False: every client has its own scene head and counts, as published, and its own model is scored; "
        "for sites that come back. True: heads are averaged and counts summed, one global model; for very many clients "
        "of which a round draws a few.",
    )


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: local training, parameters averaged by size, each client's label counts mixed with similar scenes'."""
    _need_scenes(fed)
    shared: bool = fed.method.scene_shared
    clients = fed.sample()
    before = dict(fed.record.client_states)
    updates = fed.train(clients, start, stage=1, name="local training", references=[start], server_owned=not shared)

    ids, images = [u.client for u in updates], sum(u.samples for u in updates)
    fed.record.weights = {u.client: u.samples / images for u in updates}
    trained = [u.model for u in updates], [u.samples for u in updates]
    own = [before.get(client) for client in ids], [u.state for u in updates]
    model: ModelRef
    model, states = fed.server_task(
        "average-with-scenes", ids, *trained, start, *own, shared, name="average, lend label counts", clients=len(ids)
    )
    fed.record.client_states |= states
    if not shared:
        fed.personal_states = dict(fed.record.client_states)
    return model


def _need_scenes(fed: "Federation") -> None:
    """The round is about scenes.

    Raises:
        UserError: If the network has none.
    """
    name = fed.context.model.name
    if "co_occurrence" not in NETWORKS[name].private:
        raise UserError(
            "this method is for networks with scenes",
            where="model.name",
            expected="xuesgcn",
            found=name,
            hint="--preset xuesgcn sets network, loss and method",
        )
