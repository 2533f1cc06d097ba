"""Settings of the image encoders. Light: the command line imports it for ``--help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from models.base_settings import Section


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


class BackboneSettings(Section):
    """The image encoder, a ResNet-18 of a chosen width."""

    name: Literal["resnet18"] = Field(default="resnet18", description="Image encoder.")
    width: float = Field(
        default=1.0,
        ge=0.125,
        le=4.0,
        description="Factor on the network's channels and hidden units: ResNet-18's 64, 128, 256, 512 are rounded to "
        "multiples of 8, those of lenet5, simple_cnn, fedavg_cnn and mlp to whole numbers. "
        "1.0 is the papers'; a ResNet-18 of 0.25 trains about ten times faster on a CPU.",
    )
    stem: Literal["imagenet", "small"] = Field(
        default="imagenet",
        description="imagenet: 7x7 with pooling, the papers'; small: 3x3 without pooling, which keeps the small parts "
        "of images under some 100 pixels (four times the work). Of ResNets.",
    )
    weights: Path | None = Field(
        default=None,
        description="Local file (.safetensors, .pth, .pt) to start from: a torchvision or timm ResNet-18 at width 1.0 "
        "with stem imagenet; at any width a backbone of the same width and stem, or the model of a run that has one "
        "(its rounds/NNNN/model.safetensors). Empty: random weights.",
    )

    @property
    def channels(self) -> tuple[int, int, int, int]:
        """Return the channels of the stem and the four stages, multiples of 8 and at least 8."""
        first, second, third, fourth = (max(8, 8 * round(base * self.width / 8)) for base in (64, 128, 256, 512))
        return first, second, third, fourth

    @property
    def dim(self) -> int:
        """Return the channels D of the last map: the token width d of networks that put tokens on top."""
        return self.channels[-1]

    def units(self, number: int) -> int:
        """Return a number of channels or hidden units times ``width``: a whole number, at least 1."""
        return max(1, round(number * self.width))
