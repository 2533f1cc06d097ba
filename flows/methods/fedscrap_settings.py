"""FedScrap's settings, and which runs they fit; docs/algorithms/fedscrap.md."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods.facts import RunFacts
from models.errors import UserError
from tasks.core.state_schema import read_schema
from tasks.server.personal.attention_settings import AttentionSettings
from tasks.server.personal.network_layers import network_layers

if TYPE_CHECKING:
    from flows.federation.federation import Federation

ATTENTION = set(AttentionSettings.model_fields)


class Settings(AttentionSettings):
    """FedScrap's attention between clients, and what becomes of clients that a round does not sample."""

    stale: bool = Field(
        False,
        description="Whether participants also attend to what absent clients sent last; an absent client keeps its own "
        "model in any case.",
    )
    own_model: Literal["mixed", "trained"] = Field(
        "mixed",
        description="Which model of a client is evaluated and exported: the mixture that it is given, or what it had "
        "trained before.",
    )


def check(facts: RunFacts) -> None:
    """Refuse two clients where their cosine is a constant.

    Raises:
        ValueError: If two clients take part in a round and attention is ``centered_cosine``.
    """
    s: Settings = facts.method
    known = [count for count in (facts.clients, facts.clients_per_round) if count is not None]
    if s.attention == "centered_cosine" and not s.stale and known and min(known) == 2:
        raise ValueError(
            "method.fedscrap.attention centered_cosine needs at least three clients in a round: of two, centred "
            "layers point in opposite directions whatever they learned; set it to update_cosine"
        )


def require_names(fed: "Federation") -> None:
    """Refuse blocks and clients that the run does not have, before a client trains.

    Raises:
        UserError: If ``blocks``, ``query`` or ``key`` name something else.
    """
    s: Settings = fed.method
    if s.blocks:
        schema = read_schema(fed.context)
        network_layers(schema, schema, s.granularity, s.blocks)
    for field in ("query", "key"):
        if unknown := sorted(getattr(s, field).keys() - fed.clients.keys()):
            raise UserError(
                "a coefficient is for a client that the partition does not have",
                where=f"method.{fed.setup.method_name}.{field}",
                expected=f"ids such as {', '.join(sorted(fed.clients)[:5])}",
                found=", ".join(unknown[:5]),
            )
