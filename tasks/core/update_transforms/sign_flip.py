"""A simulated attack: the named clients send the opposite of their change (docs/robustness.md)."""

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from models.settings.section import Section
from tasks.core.update_transforms import SentUpdate, Transformed

DESCRIPTION = "simulate attackers that send the opposite of their change; to test robust aggregators"


class Settings(Section):
    """Who attacks, and how strongly."""

    name: Literal["sign_flip"] = "sign_flip"
    clients: tuple[str, ...] = Field(min_length=1, description="Ids of the attacking clients.")
    scale: float = Field(1.0, gt=0, description="Length of the sent change, as a multiple of the true one.")


def apply(settings: Settings, update: SentUpdate) -> Transformed:
    """Return W - scale (theta - W) for the attackers' parameters; everything else as it is."""
    state = dict(update.state)
    if update.client in settings.clients:
        for name, value in state.items():
            if update.schema[name].kind == "parameter":
                begun = update.start[name].double()
                state[name] = (begun - settings.scale * (value.double() - begun)).to(value.dtype)
    return Transformed(state)


def check(settings: Settings, clients: Collection[str]) -> None:
    """Require that the attackers exist.

    Raises:
        ValueError: If one is no client of the partition.
    """
    if unknown := sorted(set(settings.clients) - set(clients)):
        raise ValueError(
            f"transform sign_flip names {', '.join(unknown[:5])}, which the partition does not have; its clients are "
            f"{', '.join(sorted(clients)[:5])} ..."
        )
