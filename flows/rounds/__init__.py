"""One file per federated algorithm. A method is a module with ``TITLE``, ``Settings`` and ``run_round``.

One that does not go with all settings has ``check(settings)``, which raises a ValueError before any work starts, or
``check_clients(clients_per_round, clients)``, which raises a UserError when the partition is known.

Adding a method is one module here and one line in ``METHODS``; see CONTRIBUTING.md.
"""

from importlib import import_module
from types import ModuleType

from models.errors import UserError

METHODS = {
    "fedavg": "flows.rounds.fedavg",
    "fmman": "flows.rounds.fmman",
    "fedprox": "flows.rounds.fedprox",
    "moon": "flows.rounds.moon",
    "fedhybrid": "flows.rounds.fedhybrid",
    "fedcor": "flows.rounds.fedcor",
    "xuesgcn": "flows.rounds.xuesgcn",
    "scaffold": "flows.rounds.scaffold",
    "fednova": "flows.rounds.fednova",
}


def load_method(name: str) -> ModuleType:
    """The method's module.

    Raises:
        UserError: If there is no method of that name.
    """
    if name not in METHODS:
        raise UserError("no such method", where="method.name", expected=sorted(METHODS), found=name)
    return import_module(METHODS[name])
