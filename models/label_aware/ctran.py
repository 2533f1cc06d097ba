"""C-Tran (Lanchantin et al., CVPR 2021) on ResNet-18: learned label and state embeddings; docs/algorithms/ctran.md."""

from models.label_aware.fmman import FmmanNetwork
from models.label_aware.label_graph import LearnedRows, StateTable
from models.registry import ModelSpec
from models.settings.model import ModelSettings

OPTIONS = {"use_graph": False, "use_state": True, "state_combine": "add_embed", "state_embeddings": "learned"}


def build(settings: ModelSettings, spec: ModelSpec) -> FmmanNetwork:
    """Return the network for the spec's classes; of ``model.fmman`` it uses the transformer's settings and ``z``.

    The embeddings are exchanged and averaged as all weights. Unknown has none: C-Tran intends its row to stay zero.
    """
    dim = settings.backbone.dim
    options = settings.fmman.model_copy(update=OPTIONS)
    labels, states = LearnedRows(len(spec.classes), dim), StateTable(dim, "add_embed")
    return FmmanNetwork(settings, options, labels, states)
