"""The start of a run: frozen label embeddings and the first global model."""

from typing import TYPE_CHECKING

from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from models.settings.model import ModelSettings
    from tasks.core.context import RunContext


def frozen_embeddings(settings: "ModelSettings", classes: "Sequence[str]") -> "dict[str, Tensor]":
    """Return a network's frozen embeddings: ``label_table`` [C, d], ``state_words`` [2, d] (names in the stored file).

    Empty for networks that need neither. The state embeddings come from the same source as the labels'.

    Raises:
        UserError: If their source is missing (see ``model.labels``).
    """
    from models.label_aware.label_embeddings import embed_labels, embed_states
    from models.registry import NETWORKS

    network, dim = NETWORKS[settings.name], settings.backbone.dim
    embeddings: dict[str, Tensor] = {}
    if network.needs_labels:
        embeddings["label_table"] = embed_labels(settings.labels, classes, dim)
    if network.needs_state_embeddings and settings.wants_state_embeddings:
        embeddings["state_words"] = embed_states(settings.labels, dim)
    return embeddings


def initial_model(context: "RunContext") -> ModelRef:
    """Return the first global model: random from the run's seed, the backbone from a file if one is set.

    The state schema is written beside it.

    Raises:
        UserError: If the given weights do not fit.
    """
    from models.build import new_model
    from tasks.core.network import model_spec, split_state
    from tasks.core.randomness import derive_seed
    from tasks.core.state_schema import write_schema

    store = context.open_store()
    model = new_model(context.model, model_spec(context, store), derive_seed(context.seed, "initial model"))
    write_schema(context, model)
    state, _ = split_state(model, context.bn_policy)
    assert "label_table" not in state, "frozen tensors are not exchanged"
    return store.put_state("initial.safetensors", state)
