"""The networks by name. A new network is one module with ``build`` and one entry here."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from models.settings import ModelSettings


@dataclass(frozen=True)
class Network:
    """What the pipeline must know of a network without importing it.

    Attributes:
        module: Import path; the module has ``build(settings, classes, label_table) -> nn.Module``.
        title: What it is and the paper it comes from.
        native_objective: The loss it is trained with unless a method brings its own: "fmman" or "bce".
        cluster_prefix: Prefix of the parameters that FMMAN's server clusters clients on; None where there are none.
        needs_labels: Whether ``build`` wants a label table [C, d].
    """

    module: str
    title: str
    native_objective: str
    cluster_prefix: str | None
    needs_labels: bool


NETWORKS: dict[str, Network] = {
    "fmman": Network(
        module="models.fmman",
        title="Multi-stage attention network (Zhong, Jiang et al., J. Low Power Electron. Appl. 2025, 15(3), 46)",
        native_objective="fmman",
        cluster_prefix="transformer.layers.0.",
        needs_labels=True,
    ),
    "resnet18": Network(
        module="models.classifier",
        title="ResNet-18 with a linear classifier (He et al., CVPR 2016)",
        native_objective="bce",
        cluster_prefix=None,
        needs_labels=False,
    ),
}


def build_model(settings: "ModelSettings", classes: Sequence[str], label_table: "Tensor | None") -> "nn.Module":
    """Build the network that ``settings.name`` names, on the CPU.

    Its weights are PyTorch's own start values from the global generator: call ``models.initialise.initialise``,
    or load a state, before use.

    Args:
        settings: The whole model section.
        classes: The C class names, in the data set's order.
        label_table: Unit rows [C, d] float32 with d = ``settings.backbone.dim`` (``models.label_embeddings``); None for
            networks that don't need labels.
    """
    network = NETWORKS[settings.name]
    assert label_table is not None or not network.needs_labels, f"{settings.name} needs a label table"
    model: nn.Module = import_module(network.module).build(settings, classes, label_table)
    return model
