"""Models on their way to clients: the compressed change of a model that clients have (docs/algorithms/aggregation.md).

With error feedback it is the server's side of DoubleSqueeze (Tang et al., ICML 2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.core.model_ref import ModelRef
from tasks.core.randomness import torch_generator
from tasks.core.state_schema import is_frozen, read_schema
from tasks.core.store import digest_of, state_bytes
from tasks.core.update_transforms import encoded_bytes, transform_update
from tasks.server.state_rules import cached_state

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store


@dataclass(frozen=True)
class Broadcast:
    """A model that was compressed.

    Attributes:
        model: The model as clients restore it, from which they train.
        bytes: What travels to a client that has the base.
        memory: What the transforms keep for the next model; ``None`` without error feedback.
    """

    model: ModelRef
    bytes: int
    memory: ModelRef | None = None


def compress_model(
    context: "RunContext",
    model: ModelRef,
    base: ModelRef,
    memory: ModelRef | None,
    feedback: bool,
    round_: int,
    stage: int,
) -> Broadcast:
    """Return a model as clients restore it from the compressed change of another one that they have.

    Args:
        context: The run; its ``downlink_transforms`` are applied in their order.
        model: The model to send.
        base: The one that clients have.
        memory: What the transforms kept of the model that was sent before.
        feedback: Whether they keep what they lose: there is one memory, of the model that all clients get.
        round_: The round, part of the transforms' seeds.
        stage: The stage, likewise.
    """
    store, specs = context.open_store(), context.downlink_transforms
    plain = [spec.model_dump(mode="json") for spec in specs]
    inputs = [model.digest, base.digest, memory.digest if memory else None, feedback, plain, round_, stage]
    name = f"updates/broadcast-{digest_of(context.fingerprint, *inputs)[:32]}"
    if done := _find(store, name):
        return done
    schema = read_schema(context)
    generator = torch_generator(context.seed, "downlink transforms", round_, stage)
    kept = store.get_state(memory) if memory else {}
    state = store.get_state(model)
    changing = {key: value for key, value in state.items() if not is_frozen(context, key)}
    outgoing = transform_update(
        changing, store.get_state(base), specs, schema, generator, memory=kept if feedback else {}
    )
    done = Broadcast(
        store.put_state(f"{name}.safetensors", state | outgoing.state),
        encoded_bytes(outgoing, schema),
        store.put_state(f"{name}-memory.safetensors", outgoing.memory) if feedback and outgoing.memory else None,
    )
    memory_values = vars(done.memory) if done.memory else None
    store.write_json(f"{name}.json", {"model": vars(done.model), "bytes": done.bytes, "memory": memory_values})
    return done


def _find(store: "Store", name: str) -> Broadcast | None:
    """Return the finished result of that name if it exists and verifies."""
    if not store.exists(f"{name}.json"):
        return None
    try:
        value = store.read_json(f"{name}.json")
        memory = ModelRef.of(value["memory"]) if value["memory"] else None
        done = Broadcast(ModelRef.of(value["model"]), int(value["bytes"]), memory)
    except (UserError, KeyError, TypeError, ValueError):  # damaged: compress again
        return None
    return done if all(store.holds(ref) for ref in (done.model, done.memory) if ref) else None


def frozen_bytes(context: "RunContext", model: ModelRef) -> int:
    """Return the bytes of a model's tensors that ``train.freeze`` keeps as they start."""
    state = context.open_store().get_state(model)
    return state_bytes({name: value for name, value in state.items() if is_frozen(context, name)})


def keep_holders(context: "RunContext", clients: Sequence[str]) -> ModelRef:
    """Store which clients have a model."""
    import torch

    names = list(clients)
    return cached_state(context, "holders", names, lambda _: {name: torch.ones(1, dtype=torch.bool) for name in names})


def read_holders(context: "RunContext", ref: ModelRef) -> set[str]:
    """Return what ``keep_holders`` stored."""
    return set(context.open_store().get_state(ref))
