"""pfl's CNN for CIFAR-10: two convolutions, one hidden layer, Glorot's initial weights.

apple/pfl-research, ``benchmarks/model/pytorch/cnn.py``: ``simple_cnn``, which is Reddi et al.'s network for EMNIST.
Letters: B batch, S side of the images, D units of the hidden layer.
"""

import torch
from torch import Tensor, nn

from models.classifiers.backbones import Backbone
from models.classifiers.classifier import Classifier
from models.layers.stochastic import SeededDropout
from models.registry import ModelSpec
from models.settings.backbone import BackboneSettings, InputFormat
from models.settings.model import ModelSettings

MAPS = (32, 64)  # channels of the two 3x3 convolutions, without padding
HIDDEN = 128


class PflBackbone(Backbone):
    """Two 3x3 convolutions with ReLU, 2x2 max pooling, one fully connected layer.

    Args:
        settings: Width.
        inputs: Channels and normalisation of the input.
        image_size: S.
        dropout: After the fully connected layer; half of it after the pooling.
    """

    def __init__(self, settings: BackboneSettings, inputs: InputFormat, image_size: int, dropout: float) -> None:
        super().__init__(inputs)
        (first, second), units = (settings.units(number) for number in MAPS), settings.units(HIDDEN)
        side = (image_size - 4) // 2
        self.layers = nn.Sequential(
            nn.Conv2d(inputs.channels, first, 3),
            nn.ReLU(inplace=True),
            nn.Conv2d(first, second, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            SeededDropout(dropout / 2),
            nn.Flatten(),
            nn.Linear(second * side * side, units),
            nn.ReLU(inplace=True),
            SeededDropout(dropout),
        )
        self.published_name, self.width = "pfl_cnn", units
        self.size_text = f"width {settings.width:g}, {inputs.channels} channels, images of {image_size} pixels"

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S], float in [0, 1], to vectors [B, D]."""
        vectors: Tensor = self.layers(self.normalise(x))
        return vectors


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return the network for the spec's classes and image size.

    Raises:
        UserError: The images are too small.
    """
    settings.check_images(spec.image_size)
    backbone = PflBackbone(settings.backbone, settings.inputs, spec.image_size, settings.dropout)
    model = Classifier(backbone, len(spec.classes), settings.classifier.projection)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            torch.nn.init.xavier_uniform_(layer.weight)
    return model
