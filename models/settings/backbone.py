"""Settings of the image encoders. Light: the command line imports it for ``--help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from models.settings.section import Section


@dataclass(frozen=True)
class InputFormat:
    """What a network makes of the images [B, 3, S, S] in 0..1 that it is given.

    Attributes:
        channels: 3: the images' colours; 1: their luminance.
        normalisation: ``none``, ``imagenet`` (minus mean, divided by standard deviation of ImageNet's training images)
            or ``half`` (0..1 to -1..1).
    """

    channels: int = 3
    normalisation: str = "imagenet"


@dataclass(frozen=True)
class ResNetShape:
    """A published ResNet.

    Attributes:
        blocks: Blocks of each of the four stages.
        bottleneck: Blocks of 1x1, 3x3 and 1x1 convolutions that end in four times the channels, instead of two 3x3.
    """

    blocks: tuple[int, ...]
    bottleneck: bool = False


RESNETS = {
    "resnet18": ResNetShape((2, 2, 2, 2)),
    "resnet34": ResNetShape((3, 4, 6, 3)),
    "resnet50": ResNetShape((3, 4, 6, 3), bottleneck=True),
    "resnet101": ResNetShape((3, 4, 23, 3), bottleneck=True),
}
TORCHVISION = (*RESNETS, "vgg11", "vgg16")  # networks whose weights torchvision publishes
Weights = Literal["imagenet"] | Path  # a published name, or a file
EXPANSION = 4  # of a bottleneck's channels
CHANNEL_STEP = 8  # channels are multiples of it


class BackboneSettings(Section):
    """The image encoder."""

    name: Literal["resnet18", "resnet34", "resnet50", "resnet101"] = Field(
        default="resnet18",
        description="Image encoder of the networks with label tokens, whose tokens have its last width (ResNet-18 and "
        "-34: 512, ResNet-50 and -101: 2048, times width). The plain classifiers are chosen by model.name.",
    )
    width: float = Field(
        default=1.0,
        ge=0.125,
        le=4.0,
        description="Factor on the network's channels and hidden units: those of ResNets (64, 128, 256, 512) and VGG "
        "are rounded to multiples of 8, others to whole numbers. 1.0 is the papers'; a ResNet-18 of 0.25 "
        "trains about ten times faster on a CPU.",
    )
    stem: Literal["imagenet", "small", "cifar"] = Field(
        default="imagenet",
        description="First convolution of a ResNet. imagenet: 7x7 with pooling, the papers'; small: 3x3 without "
        "pooling, which keeps the small parts of images under some 100 pixels (four times the work); cifar: 3x3 of "
        "stride 1 without pooling, as usual for images of 32 pixels (sixteen times the work). The network resnet50 "
        "takes imagenet, unless this is cifar.",
    )
    norm: Literal["default", "batch", "group", "none"] = Field(
        default="default",
        description="Normalisation layers of ResNets and VGG: BatchNorm; GroupNorm, which has no running statistics; "
        "none. default: none for vgg11 and vgg16, batch for ResNets.",
    )
    norm_groups: int = Field(
        default=2,
        ge=1,
        le=32,
        description="Groups of channels of norm group; must divide the channels (Hsieh et al., ICML 2020, and Reddi et "
        "al., ICLR 2021, take 2).",
    )
    weights: Weights | None = Field(
        default=None,
        description="What the backbone starts from. imagenet: torchvision's weights of a ResNet (but resnet50: "
        "timm.weights) or VGG at width 1.0 with stem imagenet, fetched into PyTorch's cache. Or a local file "
        "(.safetensors, .pth, .pt): a published one; at any width a backbone of the same size (fedscene pretrain) or "
        "the model of a run that has one (its rounds/NNNN/model.safetensors). Empty: random weights.",
    )

    @property
    def channels(self) -> tuple[int, int, int, int]:
        """Return the channels of a ResNet's stem and four stages (a bottleneck's inner ones)."""
        first, second, third, fourth = (self.rounded(base) for base in (64, 128, 256, 512))
        return first, second, third, fourth

    @property
    def dim(self) -> int:
        """Return the channels D of the last map: the token width d of networks that put tokens on top."""
        return self.channels[-1] * (EXPANSION if RESNETS[self.name].bottleneck else 1)

    def rounded(self, number: int) -> int:
        """Return a number of channels times ``width``: a multiple of 8, at least 8."""
        return max(CHANNEL_STEP, CHANNEL_STEP * round(number * self.width / CHANNEL_STEP))

    def units(self, number: int) -> int:
        """Return a number of channels or hidden units times ``width``: a whole number, at least 1."""
        return max(1, round(number * self.width))

    @model_validator(mode="after")
    def _groups_divide_the_channels(self) -> "BackboneSettings":
        if self.norm == "group" and any(channels % self.norm_groups for channels in self.channels):
            channels = ", ".join(map(str, self.channels))
            raise ValueError(
                f"backbone.norm_groups must divide the channels, {channels} at width {self.width:g}; "
                f"it is {self.norm_groups}"
            )
        return self
