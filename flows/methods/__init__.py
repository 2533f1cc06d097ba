"""The federated algorithms, one module each. A module has the parts of ``Method``.

Adding a method is one module here and one line in ``METHODS``; see CONTRIBUTING.md.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from models.base_settings import Section
from models.errors import UserError

if TYPE_CHECKING:
    from flows.federation.federation import Federation
    from models.settings import ModelSettings
    from tasks.core.records import ModelRef
    from tasks.core.train_settings import TrainSettings

METHODS = {
    "fedavg": "flows.methods.fedavg",
    "fmman": "flows.methods.fmman",
    "fedprox": "flows.methods.fedprox",
    "moon": "flows.methods.moon",
    "fedhybrid": "flows.methods.fedhybrid",
    "fedcor": "flows.methods.fedcor",
    "xuesgcn": "flows.methods.xuesgcn",
    "scaffold": "flows.methods.scaffold",
    "fednova": "flows.methods.fednova",
}


@dataclass(frozen=True)
class RunFacts:
    """The other settings that a method's ``check`` may look at.

    Attributes:
        method: The method's own settings.
        model: Settings of the network.
        train: Settings of local training.
        clients: Number of clients of the partition; ``None`` while it is unknown.
        clients_per_round: Participants of a round; ``None``: all clients.
    """

    method: Any
    model: "ModelSettings"
    train: "TrainSettings"
    clients: int | None
    clients_per_round: int | None


class Method(Protocol):
    """The parts of a method's module; ``check`` is optional and accepts all settings by default."""

    DESCRIPTION: str
    Settings: type[Section]

    def run_round(self, fed: "Federation", start: "ModelRef") -> "ModelRef":
        """Do one round from the global model ``start``; return the next global model."""
        ...

    def check(self, facts: RunFacts) -> None:
        """Raise a ValueError if the method does not support the settings.

        Called when settings are read, and again when the partition is known.
        """
        ...


def accept_all(facts: RunFacts) -> None:
    """Accept all settings: the default of ``check``."""
    del facts


def load_method(name: str) -> Method:
    """Return the module of a method.

    Raises:
        UserError: If there is no method of that name.
    """
    if name not in METHODS:
        raise UserError("no such method", where="method.name", expected=sorted(METHODS), found=name)
    module = import_module(METHODS[name])
    vars(module).setdefault("check", accept_all)
    return cast("Method", module)
