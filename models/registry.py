"""The networks by name. A new network is one module with ``build(settings, spec)`` and one entry here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ModelSpec:
    """The task that a network is built for.

    Attributes:
        classes: The C class names, in the data set's order.
        image_size: Side S of the square images, pixels.
        label_embeddings: Frozen unit rows [C, d] float32, d = ``settings.backbone.dim``, for networks that need them.
        state_embeddings: Frozen unit rows [2, d] of the states absent and present, for networks that need them.
    """

    classes: tuple[str, ...]
    image_size: int
    label_embeddings: "Tensor | None" = None
    state_embeddings: "Tensor | None" = None


@dataclass(frozen=True)
class Network:
    """What the pipeline knows of a network without importing it.

    Attributes:
        module: Import path; the module has ``build(settings, spec) -> nn.Module``.
        description: What it is, and its paper.
        objectives: The objectives it can be trained with, the first by default; by default those of logits of an image.
        cluster_prefix: Prefix of the parameters that FMMAN's server clusters clients on; None if there are none.
        needs_labels: Whether ``build`` needs label embeddings [C, d].
        needs_state_embeddings: Whether it may need state embeddings [2, d].
        personal: Whether its class declares personal tensors (``STATE_KINDS``), which its method must handle.
        normalisation: Its usual input normalisation (``models.settings.backbone.InputFormat``).
        norm: Its usual normalisation layers, ``batch`` or ``none``; None if it has no choice.
        dropout: Its usual probability of dropout in its hidden layers; None if it has no such layers.
        min_side: The smallest side of an image that its layers can take, pixels.
    """

    module: str
    description: str
    objectives: tuple[str, ...] = ("bce", "asl", "ce")
    cluster_prefix: str | None = None
    needs_labels: bool = False
    needs_state_embeddings: bool = False
    personal: bool = False
    normalisation: str = "imagenet"
    norm: str | None = None
    dropout: float | None = None
    min_side: int = 1

    @property
    def is_classifier(self) -> bool:
        """Return whether ``build`` returns a ``Classifier``: a backbone and a linear layer, without label tokens."""
        return self.module.startswith("models.classifiers.")


FIRST_LAYER = "transformer.layers.0."

NETWORKS: dict[str, Network] = {
    "fmman": Network(
        module="models.label_aware.fmman",
        description="Multi-stage attention network (Zhong, Jiang et al., J. Low Power Electron. Appl. 2025, 15(3), 46)",
        objectives=("fmman", "fedlgt", "label_mask_training", "bce", "ce"),
        cluster_prefix=FIRST_LAYER,
        needs_labels=True,
        needs_state_embeddings=True,
        norm="batch",
    ),
    "fedlgt": Network(
        module="models.label_aware.fedlgt",
        description="FedLGT's label transformer with frozen embeddings (Liu et al., AAAI 2024)",
        objectives=("fedlgt", "label_mask_training", "fmman", "bce", "ce"),
        cluster_prefix=FIRST_LAYER,
        needs_labels=True,
        needs_state_embeddings=True,
        norm="batch",
    ),
    "ctran": Network(
        module="models.label_aware.ctran",
        description="C-Tran, learned label and state embeddings (Lanchantin et al., CVPR 2021)",
        objectives=("label_mask_training", "fedlgt", "bce", "ce"),
        cluster_prefix=FIRST_LAYER,
        norm="batch",
    ),
    "resnet9": Network(
        module="models.classifiers.resnet9",
        description="ResNet-9 (Page, DAWNBench 2018), without norm FedMatch's (Jeong et al., ICLR 2021)",
        norm="batch",
        min_side=8,
    ),
    "resnet18": Network(
        module="models.classifiers.classifier",
        description="ResNet-18 with a linear classifier (He et al., CVPR 2016)",
        norm="batch",
    ),
    "resnet34": Network(
        module="models.classifiers.classifier",
        description="ResNet-34 with a linear classifier (He et al., CVPR 2016)",
        norm="batch",
    ),
    "resnet50": Network(
        module="models.classifiers.classifier",
        description="ResNet-50 with a linear classifier (He et al., CVPR 2016)",
        norm="batch",
    ),
    "resnet101": Network(
        module="models.classifiers.classifier",
        description="ResNet-101 with a linear classifier (He et al., CVPR 2016)",
        norm="batch",
    ),
    "vit_tiny": Network(
        module="models.classifiers.timm_classifiers",
        description="ViT-Tiny (Dosovitskiy et al., ICLR 2021; Steiner et al., TMLR 2022)",
        normalisation="half",
    ),
    "vit_small": Network(
        module="models.classifiers.timm_classifiers",
        description="ViT-Small (Dosovitskiy et al., ICLR 2021; Steiner et al., TMLR 2022)",
        normalisation="half",
    ),
    "vit_base": Network(
        module="models.classifiers.timm_classifiers",
        description="ViT-B/16 (Dosovitskiy et al., ICLR 2021; Steiner et al., TMLR 2022)",
        normalisation="half",
    ),
    "mlp_mixer": Network(
        module="models.classifiers.timm_classifiers",
        description="MLP-Mixer (Tolstikhin et al., NeurIPS 2021)",
        normalisation="half",
    ),
    "convmixer": Network(
        module="models.classifiers.timm_classifiers",
        description="ConvMixer (Trockman and Kolter, TMLR 2023)",
    ),
    "poolformer": Network(
        module="models.classifiers.timm_classifiers",
        description="PoolFormer (Yu et al., CVPR 2022)",
    ),
    "vgg11": Network(
        module="models.classifiers.vgg",
        description="VGG-11 with two hidden layers of 512 (Simonyan and Zisserman, ICLR 2015)",
        norm="none",
        dropout=0.5,
        min_side=32,
    ),
    "vgg16": Network(
        module="models.classifiers.vgg",
        description="VGG-16 with two hidden layers of 512 (Simonyan and Zisserman, ICLR 2015)",
        norm="none",
        dropout=0.5,
        min_side=32,
    ),
    "lenet5": Network(
        module="models.classifiers.small_networks",
        description="LeNet-5 with ReLU and max pooling (LeCun et al., Proc. IEEE 1998)",
        normalisation="half",
        min_side=12,
    ),
    "simple_cnn": Network(
        module="models.classifiers.small_networks",
        description="NIID-Bench's simple-cnn: two convolutions, two hidden layers (Li et al., ICDE 2022)",
        normalisation="none",
        min_side=16,
    ),
    "fedavg_cnn": Network(
        module="models.classifiers.small_networks",
        description="PFLlib's FedAvgCNN, after FedAvg's CNN (McMahan et al., AISTATS 2017)",
        normalisation="half",
        min_side=16,
    ),
    "moderate_cnn": Network(
        module="models.classifiers.moderate_cnn",
        description="NVIDIA FLARE's ModerateCNN: six convolutions, two hidden layers",
        dropout=0.1,
        min_side=8,
    ),
    "pfl_cnn": Network(
        module="models.classifiers.pfl_cnn",
        description="pfl's CNN for CIFAR-10, after the one for EMNIST (Reddi et al., ICLR 2021)",
        normalisation="half",
        dropout=0.5,
        min_side=6,
    ),
    "mlp": Network(
        module="models.classifiers.small_networks",
        description="Multi-layer perceptron on the pixels; by default FedCor's (Tang et al., CVPR 2022)",
        normalisation="half",
    ),
    "xuesgcn": Network(
        module="models.label_aware.xuesgcn",
        description="Scene-based graph convolutional network (MiLab-HITSZ/2023XueSGCN, IJCNN 2024)",
        objectives=("asl",),
        needs_labels=True,
        personal=True,
        norm="batch",
    ),
}
