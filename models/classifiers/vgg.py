"""VGG-11 and VGG-16 (Simonyan and Zisserman, ICLR 2015) with the head for small images.

torchvision's convolutions under its parameter names, its initial weights, and two hidden layers of 512 units with
dropout instead of the 4,096 of ImageNet's, as FedNova's and NIID-Bench's codes have them.

Letters: B batch, S side of the images, D channels of the last map.
"""

import torch
from torch import Tensor, nn

from models.classifiers.backbones import Backbone
from models.classifiers.classifier import Classifier
from models.layers.norms import norm_layer
from models.layers.stochastic import SeededDropout
from models.registry import NETWORKS, ModelSpec
from models.settings.backbone import BackboneSettings, InputFormat
from models.settings.model import ModelSettings

LAYERS = {"vgg11": "A", "vgg16": "D"}  # the paper's configurations
HIDDEN = 512  # units of each hidden layer of the head


class VggBackbone(Backbone):
    """VGG's convolutions, five times halved by max pooling, and the mean over the positions that are left.

    Args:
        name: ``vgg11`` or ``vgg16``.
        settings: Width and normalisation.
        inputs: Channels and normalisation of the input.
    """

    classifier = "classifier."

    def __init__(self, name: str, settings: BackboneSettings, inputs: InputFormat) -> None:
        from torchvision.models.vgg import cfgs

        super().__init__(inputs)
        norm, layers, channels = norm_layer(settings, NETWORKS[name].norm), list[nn.Module](), inputs.channels
        for entry in cfgs[LAYERS[name]]:
            if isinstance(entry, str):
                layers.append(nn.MaxPool2d(2))
                continue
            outputs = settings.rounded(entry)
            convolution = nn.Conv2d(channels, outputs, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            convolution.bias = nn.Parameter(torch.zeros(outputs))
            layers.append(convolution)
            if norm is not nn.Identity:
                layers.append(norm(outputs))
            layers.append(nn.ReLU(inplace=True))
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.width = channels
        self.published_name = name.replace("vgg", "VGG-")
        self.size_text = f"width {settings.width:g}, {inputs.channels} channels, norm {settings.norm}"

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S], float in [0, 1], to vectors [B, D]; under 64 pixels there is one position."""
        mean: Tensor = self.features(self.normalise(x)).mean((2, 3))
        return mean


def head(inputs: int, units: int, dropout: float) -> nn.Sequential:
    """Return the two hidden layers [B, inputs] -> [B, units], dropout before each."""
    return nn.Sequential(
        SeededDropout(dropout), nn.Linear(inputs, units), nn.ReLU(inplace=True),
        SeededDropout(dropout), nn.Linear(units, units), nn.ReLU(inplace=True),
    )  # fmt: skip


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return the network ``settings.name`` for the spec's classes.

    Raises:
        UserError: The images are too small.
    """
    settings.check_images(spec.image_size)
    backbone = VggBackbone(settings.name, settings.backbone, settings.inputs)
    units = settings.backbone.rounded(HIDDEN)
    hidden = head(backbone.width, units, settings.dropout)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection, hidden, units)
