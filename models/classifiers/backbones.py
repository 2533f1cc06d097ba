"""The base of the image encoders. Letters: B batch, H and W image height and width, D length of an image's vector."""

import torch
from torch import Tensor, nn

from models.settings.backbone import InputFormat

# Mean and standard deviation of ImageNet's training images, per channel, for inputs in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
NORMALISATIONS = {"imagenet": (IMAGENET_MEAN, IMAGENET_STD), "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))}
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
COLOUR = InputFormat()


class Backbone(nn.Module):
    """Map images to one vector: the base of a plain classifier. Images are normalised here and nowhere else.

    Args:
        inputs: Channels and normalisation of the input.

    Attributes:
        width: D, length of the vector.
        published_name: The published network whose weight files fit at its published size.
        size_text: The network's size, for messages.
        classifier: Prefix of the tensors in such a file that are not the backbone's.
    """

    mean: Tensor
    std: Tensor
    luminance: Tensor
    width: int
    published_name: str
    size_text: str
    classifier: str = "readout."

    def __init__(self, inputs: InputFormat = COLOUR) -> None:
        super().__init__()
        self.inputs = inputs
        # Constants, not state: outside the state dict, so they are neither sent nor averaged.
        luminance = torch.tensor(LUMINANCE).view(1, 3, 1, 1)
        self.register_buffer("luminance", luminance, persistent=False)
        for name, values in zip(("mean", "std"), NORMALISATIONS.get(inputs.normalisation, ()), strict=False):
            constant = torch.tensor(values).view(1, 3, 1, 1)
            if inputs.channels == 1:
                constant = (constant * luminance).sum(1, keepdim=True)
            self.register_buffer(name, constant, persistent=False)

    def normalise(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to the network's normalised input [B, channels, H, W]."""
        if self.inputs.channels == 1:
            x = (x * self.luminance).sum(1, keepdim=True)
        return x if self.inputs.normalisation == "none" else (x - self.mean) / self.std

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to vectors [B, D]."""
        raise NotImplementedError

    @property
    def published(self) -> nn.Module:
        """Return the module whose tensors have the names of the published weight files."""
        return self

    def adapt(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a published state, adapted to this network's image size where possible."""
        return state
