"""FedLGT's network (Liu et al., AAAI 2024): no graph, frozen label and state embeddings; docs/algorithms/fedlgt.md."""

from models.label_aware.fmman import FmmanNetwork
from models.label_aware.label_graph import FrozenRows, frozen_states
from models.registry import ModelSpec
from models.settings.model import ModelSettings

OPTIONS = {"use_graph": False, "use_state": True, "state_combine": "add_embed", "state_embeddings": "frozen"}


def build(settings: ModelSettings, spec: ModelSpec) -> FmmanNetwork:
    """Return the network for the spec's classes; of ``model.fmman`` it uses the transformer's settings and ``z``."""
    table, words = spec.label_embeddings, spec.state_embeddings
    assert table is not None and words is not None, "FedLGT needs label and state embeddings"
    assert table.shape[0] == len(spec.classes), "one label embedding for each class"
    options = settings.fmman.model_copy(update=OPTIONS)
    return FmmanNetwork(settings, options, FrozenRows(table), frozen_states(words))
