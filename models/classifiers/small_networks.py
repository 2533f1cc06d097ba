"""The small networks of federated benchmarks: LeNet-5, NIID-Bench's simple-cnn, PFLlib's FedAvgCNN, the MLP.

Initial weights are PyTorch's, as in the published codes. ``model.backbone.width`` scales channels and hidden units.
Letters: B batch, S side of the images, D units of the last hidden layer.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.classifiers.backbones import Backbone
from models.classifiers.classifier import Classifier
from models.registry import ModelSpec
from models.settings.backbone import BackboneSettings, InputFormat
from models.settings.model import ModelSettings

KERNEL = 5  # pixels, of all convolutions here
LENET_SIDE = 32  # the images that LeNet-5 is made for; MNIST's 28 pixels are padded to it


@dataclass(frozen=True)
class ConvSizes:
    """A published convolutional network of two convolutions.

    Attributes:
        maps: Channels of the two convolutions.
        hidden: Units of the fully connected layers before the classifier.
        pads_small_images: Whether images under 32 pixels are padded by 2 on each side.
    """

    maps: tuple[int, int]
    hidden: tuple[int, ...]
    pads_small_images: bool = False


CONV_SIZES = {
    "lenet5": ConvSizes((6, 16), (120, 84), pads_small_images=True),
    "simple_cnn": ConvSizes((6, 16), (120, 84)),
    "fedavg_cnn": ConvSizes((32, 64), (512,)),
}


class HiddenLayers(nn.Sequential):
    """Linear layers, each followed by ReLU: [B, inputs] -> [B, units[-1]]."""

    def __init__(self, inputs: int, units: tuple[int, ...]) -> None:
        layers: list[nn.Module] = []
        for before, after in pairwise((inputs, *units)):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class ConvBackbone(Backbone):
    """Two 5x5 convolutions, each followed by ReLU and 2x2 max pooling, then fully connected layers.

    Args:
        name: The network, for messages.
        sizes: Its published sizes.
        settings: Width.
        inputs: Channels and normalisation of the input.
        image_size: S.
    """

    def __init__(
        self, name: str, sizes: ConvSizes, settings: BackboneSettings, inputs: InputFormat, image_size: int
    ) -> None:
        super().__init__(inputs)
        first, second = (settings.units(number) for number in sizes.maps)
        hidden = tuple(settings.units(number) for number in sizes.hidden)
        padding = 2 if sizes.pads_small_images and image_size < LENET_SIDE else 0
        side = ((image_size + 2 * padding - KERNEL + 1) // 2 - KERNEL + 1) // 2
        self.published_name, self.width = name, hidden[-1]
        self.size_text = f"width {settings.width:g}, {inputs.channels} channels, images of {image_size} pixels"
        self.conv1 = nn.Conv2d(inputs.channels, first, KERNEL, padding=padding)
        self.conv2 = nn.Conv2d(first, second, KERNEL)
        self.hidden = HiddenLayers(second * side * side, hidden)

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S], float in [0, 1], to vectors [B, D]."""
        x = self.normalise(x)
        for conv in (self.conv1, self.conv2):
            x = F.relu(F.max_pool2d(conv(x), 2), inplace=True)  # the same as ReLU first, on a quarter of the values
        vectors: Tensor = self.hidden(torch.flatten(x, 1))
        return vectors


class MlpBackbone(Backbone):
    """Fully connected layers on the pixels.

    Args:
        units: Hidden units of each layer.
        inputs: Channels and normalisation of the input.
        image_size: S.
    """

    def __init__(self, units: tuple[int, ...], inputs: InputFormat, image_size: int) -> None:
        super().__init__(inputs)
        self.published_name, self.width = "mlp", units[-1]
        shape = "-".join(map(str, units))
        self.size_text = f"hidden layers {shape}, {inputs.channels} channels, images of {image_size} pixels"
        self.hidden = HiddenLayers(inputs.channels * image_size * image_size, units)

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S], float in [0, 1], to vectors [B, D]."""
        vectors: Tensor = self.hidden(torch.flatten(self.normalise(x), 1))
        return vectors


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return ``lenet5``, ``simple_cnn``, ``fedavg_cnn`` or ``mlp`` for the spec's classes and image size.

    Raises:
        UserError: The images are too small.
    """
    settings.check_images(spec.image_size)
    backbone: Backbone
    if settings.name == "mlp":
        units = tuple(settings.backbone.units(number) for number in settings.mlp.hidden)
        backbone = MlpBackbone(units, settings.inputs, spec.image_size)
    else:
        sizes = CONV_SIZES[settings.name]
        backbone = ConvBackbone(settings.name, sizes, settings.backbone, settings.inputs, spec.image_size)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection)
