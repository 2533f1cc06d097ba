"""NVIDIA FLARE's ModerateCNN for CIFAR-10: six convolutions, two hidden layers; initial weights are PyTorch's.

Letters: B batch, S side of the images, D units of the last hidden layer.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from models.classifiers.backbones import Backbone
from models.classifiers.classifier import Classifier
from models.layers.stochastic import SeededDropout, SeededDropout2d
from models.registry import ModelSpec
from models.settings.backbone import BackboneSettings, InputFormat
from models.settings.model import ModelSettings

MAPS = (32, 64, 128, 128, 256, 256)  # channels; each second convolution is followed by pooling
HIDDEN = 512


class ModerateBackbone(Backbone):
    """Three times two 3x3 convolutions with ReLU and 2x2 max pooling, then two fully connected layers.

    Args:
        settings: Width.
        inputs: Channels and normalisation of the input.
        image_size: S.
        dropout: Before the first and after the second fully connected layer; half of it on the channels after the
            second pooling.
    """

    def __init__(self, settings: BackboneSettings, inputs: InputFormat, image_size: int, dropout: float) -> None:
        super().__init__(inputs)
        maps, units = [settings.units(number) for number in MAPS], settings.units(HIDDEN)
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise((inputs.channels, *maps))):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(inplace=True)]
            layers += [nn.MaxPool2d(2)] if index % 2 else []
            layers += [SeededDropout2d(dropout / 2)] if index == 3 else []
        self.convolutions = nn.Sequential(*layers)
        side = image_size // 2 // 2 // 2
        self.hidden = nn.Sequential(
            SeededDropout(dropout),
            nn.Linear(maps[-1] * side * side, units),
            nn.ReLU(inplace=True),
            nn.Linear(units, units),
            nn.ReLU(inplace=True),
            SeededDropout(dropout),
        )
        self.published_name, self.width = "moderate_cnn", units
        self.size_text = f"width {settings.width:g}, {inputs.channels} channels, images of {image_size} pixels"

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S], float in [0, 1], to vectors [B, D]."""
        vectors: Tensor = self.hidden(torch.flatten(self.convolutions(self.normalise(x)), 1))
        return vectors


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return the network for the spec's classes and image size.

    Raises:
        UserError: The images are too small.
    """
    settings.check_images(spec.image_size)
    backbone = ModerateBackbone(settings.backbone, settings.inputs, spec.image_size, settings.dropout)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection)
