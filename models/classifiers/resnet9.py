"""ResNet-9 (Page's DAWNBench entry, 2018); with ``norm: none`` FedMatch's (Jeong et al., ICLR 2021).

Letters: B batch, S side of the images, D channels of the last map.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from models.classifiers.backbones import Backbone
from models.classifiers.classifier import Classifier
from models.classifiers.resnet import NORM, initialise_convolutions, shrink_branches
from models.layers.norms import NormLayer, norm_layer
from models.registry import ModelSpec
from models.settings.backbone import BackboneSettings, InputFormat
from models.settings.model import ModelSettings


class ConvUnit(nn.Module):
    """A 3x3 convolution without bias, normalisation, ReLU: [B, inputs, h, w] -> [B, outputs, h, w]."""

    def __init__(self, inputs: int, outputs: int, norm: NormLayer) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return a map of the same size."""
        return F.relu(self.norm(self.conv(x)), inplace=True)


class ResidualBlock(nn.Module):
    """A map plus two units of it: [B, channels, h, w] -> the same shape."""

    def __init__(self, channels: int, norm: NormLayer) -> None:
        super().__init__()
        self.unit1 = ConvUnit(channels, channels, norm)
        self.unit2 = ConvUnit(channels, channels, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + unit2(unit1(x))."""
        branch: Tensor = self.unit2(self.unit1(x))
        return branch + x


class ResNet9Backbone(Backbone):
    """Eight convolutions, two residual blocks among them, and the maximum over the last map.

    Args:
        settings: Width and normalisation.
        inputs: Channels and normalisation of the input.
    """

    def __init__(self, settings: BackboneSettings, inputs: InputFormat) -> None:
        super().__init__(inputs)
        norm = norm_layer(settings, NORM)
        first, second, third, fourth = settings.channels
        self.published_name, self.width = "resnet9", fourth
        self.size_text = f"width {settings.width:g}, {inputs.channels} channels, norm {settings.norm}"
        self.unit1 = ConvUnit(inputs.channels, first, norm)
        self.unit2 = ConvUnit(first, second, norm)
        self.block1 = ResidualBlock(second, norm)
        self.unit3 = ConvUnit(second, third, norm)
        self.unit4 = ConvUnit(third, fourth, norm)
        self.block2 = ResidualBlock(fourth, norm)
        initialise_convolutions(self)
        if norm is nn.Identity:
            shrink_branches([self.block1.unit2.conv, self.block2.unit2.conv])

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S] in [0, 1] to vectors [B, D], the maximum over S/8 x S/8 positions."""
        x = F.max_pool2d(self.unit2(self.unit1(self.normalise(x))), 2)
        x = self.block1(x)
        x = F.max_pool2d(self.unit3(x), 2)
        x = F.max_pool2d(self.unit4(x), 2)
        x = self.block2(x)
        return x.amax((2, 3))


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return the network for the spec's classes.

    Raises:
        UserError: The images are too small.
    """
    settings.check_images(spec.image_size)
    backbone = ResNet9Backbone(settings.backbone, settings.inputs)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection)
