"""What a run starts from: the label embeddings and the first global model."""

from typing import TYPE_CHECKING

from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from models.settings import ModelSettings
    from tasks.core.context import RunContext


def fixed_tables(settings: "ModelSettings", classes: "Sequence[str]") -> "dict[str, Tensor]":
    """What a network is built around and never trains: ``label_table`` [C, d] and ``state_words`` [2, d].

    Empty for networks that need neither. The state words come from the same source as the labels.

    Raises:
        UserError: If their source is not there (see ``model.labels``).
    """
    from models.label_aware.label_embeddings import embed_labels, embed_state_words
    from models.registry import NETWORKS

    network, dim = NETWORKS[settings.name], settings.backbone.dim
    tables: dict[str, Tensor] = {}
    if network.needs_labels:
        tables["label_table"] = embed_labels(settings.labels, classes, dim)
    if network.needs_state_words and settings.wants_state_words:
        tables["state_words"] = embed_state_words(settings.labels, dim)
    return tables


def initial_model(context: "RunContext") -> ModelRef:
    """The first global model: drawn from the run's seed, the backbone from a file if one is given.

    Raises:
        UserError: If the given weights do not fit.
    """
    from models.build import new_model
    from tasks.core.network import problem_of, split_state
    from tasks.core.randomness import torch_generator

    store = context.open_store()
    model = new_model(context.model, problem_of(context, store), torch_generator(context.seed, "initial model"))
    state, _ = split_state(model, context.bn_policy)
    assert "label_table" not in state, "frozen tensors are not exchanged"
    return store.put_state("initial.safetensors", state)
