"""What a method's ``check`` may look at."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.settings.model import ModelSettings
    from tasks.core.train_settings import TrainSettings


@dataclass(frozen=True)
class RunFacts:
    """The other settings that a method's ``check`` may look at.

    Attributes:
        method: The method's own settings.
        model: Settings of the network.
        train: Settings of local training.
        clients: Number of clients of the partition; ``None`` while it is unknown.
        clients_per_round: Participants of a round; ``None``: all clients.
        required: Clients that must take part in every round.
        server_transforms: Names of the update transforms at the server.
        bn_policy: What happens to BatchNorm statistics.
    """

    method: Any
    model: "ModelSettings"
    train: "TrainSettings"
    clients: int | None
    clients_per_round: int | None
    required: tuple[str, ...] = ()
    server_transforms: tuple[str, ...] = ()
    bn_policy: str = "avg"
