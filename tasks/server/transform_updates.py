"""The server's update transforms: each valid update is transformed before it is aggregated."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

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
    context: "RunContext", updates: Sequence[Update], starts: ModelRef | Mapping[str, ModelRef], round_: int, stage: int
) -> list[Update]:
    """Return the updates with transformed weights; one model is in memory at a time.

    Args:
        context: The run; its ``server_transforms`` are applied in their order.
        updates: The valid updates.
        starts: The model that training started from, of all clients or of each.
        round_: The round, part of the transforms' seeds.
        stage: The stage, likewise.
    """
    schema, specs = read_schema(context), context.server_transforms

    def transformed(update: Update) -> ModelRef:
        start = starts if isinstance(starts, ModelRef) else starts[update.client]

        def make(store: "Store") -> "dict[str, Tensor]":
            generator = torch_generator(context.seed, "server update transforms", round_, stage, update.client)
            state, begun = store.get_state(update.model), store.get_state(start)
            return transform_update(state, begun, specs, schema, generator, update.client).state

        plain = [spec.model_dump(mode="json") for spec in specs]
        inputs = [update.client, update.model.digest, start.digest, plain, round_, stage]
        return cached_state(context, "transformed", inputs, make)

    return [replace(update, model=transformed(update)) for update in updates]
