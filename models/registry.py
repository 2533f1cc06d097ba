"""The networks by name. A new network is one module with ``build`` and one entry here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ModelSpec:
    """What a network is built for, besides its settings.

    Attributes:
        classes: The C class names, in the data set's order.
        image_size: Side S of the square images, pixels.
        label_table: Unit rows [C, d] float32 with d = ``settings.backbone.dim`` (``label_embeddings``), for
            networks that need labels.
        state_words: Unit rows [2, d], the embeddings of the words for absent and present, for networks that need them.
    """

    classes: tuple[str, ...]
    image_size: int
    label_table: "Tensor | None" = None
    state_words: "Tensor | None" = None


@dataclass(frozen=True)
class Network:
    """What the pipeline must know of a network without importing it.

    Attributes:
        module: Import path; the module has ``build(settings, problem) -> nn.Module``.
        title: What it is and the paper it comes from.
        objectives: The losses it can be trained with; the first is its own, used unless another is named.
        cluster_prefix: Prefix of the parameters that FMMAN's server clusters clients on; None where there are none.
        needs_labels: Whether ``build`` wants a label table [C, d].
        needs_state_words: Whether it may want the two state words' embeddings [2, d].
        private: Prefixes of tensors with a rule of their own, which stay out of the parameter average.
    """

    module: str
    title: str
    objectives: tuple[str, ...]
    cluster_prefix: str | None = None
    needs_labels: bool = False
    needs_state_words: bool = False
    private: tuple[str, ...] = ()


PLAIN = ("bce", "asl")  # losses of networks that map images to logits and nothing else
FIRST_LAYER = "transformer.layers.0."

NETWORKS: dict[str, Network] = {
    "fmman": Network(
        module="models.label_aware.fmman",
        title="Multi-stage attention network (Zhong, Jiang et al., J. Low Power Electron. Appl. 2025, 15(3), 46)",
        objectives=("fmman", "fedlgt", "label_mask_training", "bce"),
        cluster_prefix=FIRST_LAYER,
        needs_labels=True,
        needs_state_words=True,
    ),
    "fedlgt": Network(
        module="models.label_aware.fedlgt",
        title="FedLGT's label transformer with frozen embeddings (Liu et al., AAAI 2024)",
        objectives=("fedlgt", "label_mask_training", "fmman", "bce"),
        cluster_prefix=FIRST_LAYER,
        needs_labels=True,
        needs_state_words=True,
    ),
    "ctran": Network(
        module="models.label_aware.ctran",
        title="C-Tran, label and state embeddings learnt (Lanchantin et al., CVPR 2021)",
        objectives=("label_mask_training", "fedlgt", "bce"),
        cluster_prefix=FIRST_LAYER,
    ),
    "resnet18": Network(
        module="models.classifiers.classifier",
        title="ResNet-18 with a linear classifier (He et al., CVPR 2016)",
        objectives=PLAIN,
    ),
    "resnet50": Network(
        module="models.classifiers.classifier",
        title="ResNet-50 with a linear classifier (He et al., CVPR 2016)",
        objectives=PLAIN,
    ),
    "vit_tiny": Network(
        module="models.classifiers.timm_classifiers",
        title="ViT-Tiny (Dosovitskiy et al., ICLR 2021; Steiner et al., TMLR 2022)",
        objectives=PLAIN,
    ),
    "mlp_mixer": Network(
        module="models.classifiers.timm_classifiers",
        title="MLP-Mixer (Tolstikhin et al., NeurIPS 2021)",
        objectives=PLAIN,
    ),
    "convmixer": Network(
        module="models.classifiers.timm_classifiers",
        title="ConvMixer (Trockman and Kolter, TMLR 2023)",
        objectives=PLAIN,
    ),
    "poolformer": Network(
        module="models.classifiers.timm_classifiers",
        title="PoolFormer (Yu et al., CVPR 2022)",
        objectives=PLAIN,
    ),
    "xuesgcn": Network(
        module="models.label_aware.xuesgcn",
        title="Scene-based graph convolutional network (MiLab-HITSZ/2023XueSGCN, IJCNN 2024)",
        objectives=("asl",),
        needs_labels=True,
        private=("scene_head.", "co_occurrence", "scene_counts"),
    ),
}
