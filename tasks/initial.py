"""What a run starts from: the label embeddings and the first global model."""

from typing import TYPE_CHECKING

from tasks.records import ModelRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from models.settings import ModelSettings
    from tasks.context import RunContext


def label_table(settings: "ModelSettings", classes: "Sequence[str]") -> "Tensor | None":
    """The frozen label embeddings [C, d], ``None`` for networks without.

    Raises:
        UserError: If their source is not there (see ``model.labels``).
    """
    from models.label_embeddings import embed_labels
    from models.registry import NETWORKS

    if not NETWORKS[settings.name].needs_labels:
        return None
    return embed_labels(settings.labels, classes, settings.backbone.dim)


def initial_model(context: "RunContext") -> ModelRef:
    """The first global model: drawn from the run's seed, the backbone from a file if one is given.

    Raises:
        UserError: If the given weights do not fit.
    """
    from models.initialise import new_model
    from tasks.network import split_state
    from tasks.randomness import torch_generator

    store = context.open_store()
    table = store.get_state(context.label_table)["label_table"] if context.label_table else None
    model = new_model(context.model, context.classes, table, torch_generator(context.seed, "initial model"))
    state, _ = split_state(model, context.bn_policy)
    assert "label_table" not in state, "frozen tensors are not exchanged"
    return store.put_state("initial.safetensors", state)
