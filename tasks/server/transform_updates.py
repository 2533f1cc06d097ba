"""The server's update transforms: each valid update is transformed before it is aggregated."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.client.payload import Payload
from tasks.core.network import personal_tensors
from tasks.core.randomness import torch_generator
from tasks.core.records import ModelRef, Update
from tasks.core.state_schema import read_schema
from tasks.core.update_transforms import transform_update
from tasks.server.state_rules import cached_state

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.context import RunContext
    from tasks.core.store import Store


def transform_updates(
    context: "RunContext", updates: Sequence[Update], sent: Mapping[str, Payload], round_: int, stage: int
) -> list[Update]:
    """Return the updates with transformed weights; one model is in memory at a time.

    Args:
        context: The run; its ``server_transforms`` are applied in their order.
        updates: The valid updates.
        sent: Client -> what it was sent: the weights that its training started from, and its personal ones.
        round_: The round, part of the transforms' seeds.
        stage: The stage, likewise.
    """
    schema, specs = read_schema(context), context.server_transforms

    def transformed(update: Update) -> ModelRef:
        start, personal = sent[update.client].start.ref, sent[update.client].personal

        def make(store: "Store") -> "dict[str, Tensor]":
            generator = torch_generator(context.seed, "server update transforms", round_, stage, update.client)
            state, begun = store.get_state(update.model), store.get_state(start)
            if personal is not None:
                begun |= personal_tensors(store, personal.ref)
            return transform_update(state, begun, specs, schema, generator, update.client).state

        plain = [spec.model_dump(mode="json") for spec in specs]
        inputs = [update.client, update.model.digest, start.digest, plain, round_, stage]
        inputs += [personal.ref.digest] if personal is not None else []
        return cached_state(context, "transformed", inputs, make)

    return [replace(update, model=transformed(update)) for update in updates]
