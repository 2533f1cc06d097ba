"""XueSGCN's round: MiLab-HITSZ/2023XueSGCN, IJCNN 2024; docs/algorithms/xuesgcn.md. For the network xuesgcn."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.errors import UserError
from models.registry import NETWORKS
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "XueSGCN: label co-occurrence counts mixed between similar scenes (MiLab-HITSZ/2023XueSGCN, IJCNN 2024)"

ACCEPTS_AGGREGATOR = False
PERSONAL_TENSORS = True


class Settings(Section):
    """Whether clients share scenes; their number is set in ``model.xuesgcn``, their loss in ``objective.asl``."""

    scene_shared: bool = Field(
        False,
        description="False: every client has its own scene head and counts, as published, and its own model is "
        "evaluated; for stateful clients. True: heads are averaged and counts summed, one global model; for very many "
        "clients of which a round samples a few.",
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train, average the parameters by sample count, and mix each client's label counts with similar scenes'."""
    from tasks.server.xuesgcn import mix_scenes

    _require_scenes(fed)
    start, shared = state.global_model, fed.method.scene_shared
    updates = fed.train(fed.sample(), Payload.of(start), stage=1, name="local training")

    mean = fed.average(updates, name="weighted average")
    ids, models = [u.client for u in updates], [u.model for u in updates]
    before = [state.personal.get(client) for client in ids]
    title = "mix label counts"
    model, scenes = fed.server_task(
        mix_scenes, ids, models, mean, fed.as_sent(start), before, shared, name=title, clients=len(ids)
    )
    state.personal |= scenes
    return state.with_global(model)


def _require_scenes(fed: "Federation") -> None:
    """Require a network with scenes.

    Raises:
        UserError: If the network has none.
    """
    name = fed.context.model.name
    if not NETWORKS[name].personal:
        raise UserError(
            "method xuesgcn needs a network with scenes",
            where="model.name",
            expected="xuesgcn",
            found=name,
            hint="--preset xuesgcn sets network, loss and method",
        )
