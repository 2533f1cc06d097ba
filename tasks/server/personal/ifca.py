"""IFCA's server: further initial models, and the clients' choice (docs/algorithms/ifca.md)."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.state_schema import is_frozen
from tasks.server.state_rules import cached_state

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.context import RunContext
    from tasks.core.store import Store


def choose(losses: Sequence[Mapping[str, float]]) -> dict[str, int]:
    """Return for each client the index j of its lowest loss F_i(theta_j), the first of equals (algorithm 1, step 8).

    Args:
        losses: For each of the k models, client -> its mean loss.

    Raises:
        UserError: If a client has no finite loss.
    """
    found = {}
    for client in losses[0]:
        own = [each[client] for each in losses]
        finite = [loss if math.isfinite(loss) else math.inf for loss in own]
        if min(finite) == math.inf:
            raise UserError("a client has no finite loss with any model", where=f"client {client}", found=own)
        found[client] = finite.index(min(finite))
    return found


def further_model(context: "RunContext", first: ModelRef, index: int, shared: bool) -> ModelRef:
    """Return an initial model with random weights of its own; a frozen or shared encoder is the first's.

    Args:
        context: The run.
        first: The run's initial model.
        index: Which of the further models, from 1; part of the seed.
        shared: Whether the image encoder is the first model's.
    """

    def make(store: "Store") -> "dict[str, Tensor]":
        from models.build import new_model
        from models.weights.parts import PREFIX
        from tasks.core.network import model_spec, split_state
        from tasks.core.randomness import derive_seed

        seed = derive_seed(context.seed, "further initial model", index)
        model = new_model(context.model, model_spec(context, store), seed)
        state, _ = split_state(model, context.bn_policy)
        given = store.get_state(first)

        def same(name: str) -> bool:
            return (shared and name.startswith(PREFIX)) or is_frozen(context, name)

        return {name: given[name] if same(name) else value for name, value in state.items()}

    return cached_state(context, "further-model", [first.digest, index, shared], make)


def with_shared_parts(context: "RunContext", model: ModelRef, mean: ModelRef) -> ModelRef:
    """Return a cluster's model with the image encoder of the mean over all clusters."""

    def make(store: "Store") -> "dict[str, Tensor]":
        from models.weights.parts import PREFIX

        shared = store.get_state(mean)
        return {
            name: shared[name] if name.startswith(PREFIX) else value for name, value in store.get_state(model).items()
        }

    return cached_state(context, "shared-encoder", [model.digest, mean.digest], make)
