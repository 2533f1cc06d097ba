"""The federated algorithms, one module each. A module has the parts of ``Method``.

Adding a method is one module here and one line in ``METHODS``; see CONTRIBUTING.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from flows.methods.facts import RunFacts
from models.errors import UserError
from models.settings.section import Section

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.federation.federation import Federation
    from tasks.client.work import Data
    from tasks.core.round_state import RoundState

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
    "feddyn": "flows.methods.feddyn",
    "local": "flows.methods.local",
    "fedavg_finetune": "flows.methods.fedavg_finetune",
    "ifca": "flows.methods.ifca",
    "cfl": "flows.methods.cfl",
    "icfl": "flows.methods.icfl",
    "cpfl": "flows.methods.cpfl",
    "fedper": "flows.methods.fedper",
    "fedrep": "flows.methods.fedrep",
    "fedbn": "flows.methods.fedbn",
    "ditto": "flows.methods.ditto",
    "fedala": "flows.methods.fedala",
    "fedscrap": "flows.methods.fedscrap",
    "fedamp": "flows.methods.fedamp",
}


class Method(Protocol):
    """The parts of a method's module. ``DEFAULTS`` has those that are optional.

    Attributes:
        DESCRIPTION: One line, with the source.
        Settings: The method's own settings.
        DATA: Training images that clients must have: ``labelled`` (the default), ``unlabelled`` or ``both``.
        ACCEPTS_AGGREGATOR: Whether ``fed.aggregate`` may apply another rule than the mean, or a function of the
            method's settings that says so; True by default.
        ACCEPTS_WEIGHTING: Whether ``fed.aggregate`` is called without weights, so that ``aggregation.weighting``
            decides, or such a function; True by default for methods that accept an aggregator.
        PERSONAL_TENSORS: Whether it is for networks whose class declares personal tensors; False by default.
    """

    DESCRIPTION: str
    Settings: type[Section]
    DATA: "Data"
    ACCEPTS_AGGREGATOR: "bool | Callable[[Any], bool]"
    ACCEPTS_WEIGHTING: "bool | Callable[[Any], bool]"
    PERSONAL_TENSORS: bool

    def run_round(self, fed: "Federation", state: "RoundState") -> "RoundState":
        """Do one round from ``state``, which is the method's to change; return the state that it ends with."""
        ...

    def check(self, facts: RunFacts) -> None:
        """Raise a ValueError if the method does not support the settings.

        Called when settings are read, and again when the partition is known.
        """
        ...


def accept_all(facts: RunFacts) -> None:
    """Accept all settings: the default of ``check``."""
    del facts


DEFAULTS = {
    "check": accept_all,
    "DATA": "labelled",
    "ACCEPTS_AGGREGATOR": True,
    "ACCEPTS_WEIGHTING": True,
    "PERSONAL_TENSORS": False,
}


def load_method(name: str) -> Method:
    """Return the module of a method.

    Raises:
        UserError: If there is no method of that name.
    """
    if name not in METHODS:
        raise UserError("no such method", where="method.name", expected=sorted(METHODS), found=name)
    module = import_module(METHODS[name])
    for part, default in DEFAULTS.items():
        vars(module).setdefault(part, default)
    return cast("Method", module)
