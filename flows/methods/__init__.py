"""One file per federated algorithm. A method is a module with ``TITLE``, ``Settings`` and ``run_round``.

One that does not go with all settings has ``check(facts)``, which raises a ValueError. It is called when settings are
read, and again when the partition is known.

Adding a method is one module here and one line in ``METHODS``; see CONTRIBUTING.md.
"""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from models.errors import UserError

if TYPE_CHECKING:
    from models.settings import ModelSettings
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
    """What a method may ask of the rest of the settings, to refuse those that it does not go with.

    Attributes:
        method: The method's own settings.
        model: Settings of the network.
        train: Settings of local training.
        clients: Number of clients of the partition; ``None`` while that is not known.
        clients_per_round: Number of clients that take part in a round; ``None``: all.
    """

    method: Any
    model: "ModelSettings"
    train: "TrainSettings"
    clients: int | None
    clients_per_round: int | None


def load_method(name: str) -> ModuleType:
    """The method's module.

    Raises:
        UserError: If there is no method of that name.
    """
    if name not in METHODS:
        raise UserError("no such method", where="method.name", expected=sorted(METHODS), found=name)
    return import_module(METHODS[name])
