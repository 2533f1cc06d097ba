"""ResNets (He et al., CVPR 2016).

Without normalisation layers a residual block would double the variance of its input. The last convolution of each
branch is then divided by the square root of the number of blocks, as in Fixup's and SkipInit's analyses (Zhang et al.,
ICLR 2019; De and Smith, NeurIPS 2020), so that the variance grows by a factor of at most e over the whole depth. The
weights are He's otherwise, and nothing is learned in place of the norms' scales and biases.

Letters: B batch, H and W image height and width, D channels of the last map, h and w its size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.classifiers.backbones import COLOUR, Backbone
from models.layers.norms import norm_layer
from models.settings.backbone import RESNETS, BackboneSettings, InputFormat

NORM = "batch"  # of ResNets, by default


def initialise_convolutions(network: nn.Module) -> None:
    """Fill the weights of all convolutions by He's rule, over the outputs, as torchvision's ResNets."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


@torch.no_grad()
def shrink_branches(last_convolutions: list[nn.Conv2d]) -> None:
    """Divide the last convolution of each residual branch by the square root of their number."""
    for convolution in last_convolutions:
        convolution.weight.div_(len(last_convolutions) ** 0.5)


class ResNetTokens(Backbone):
    """A ResNet from its stem to its last stage, without pooling and classifier.

    Built of timm's blocks under torchvision's parameter names. timm's own ResNet has 64 stem channels at every width,
    so the stem is built here.

    Args:
        settings: Name, width, stem and normalisation of the network.
        inputs: Channels and normalisation of the input.
        blocks: Blocks of each stage; default: the published number.
    """

    classifier = "fc."

    def __init__(
        self, settings: BackboneSettings, inputs: InputFormat = COLOUR, blocks: tuple[int, ...] | None = None
    ) -> None:
        from timm.models.resnet import BasicBlock, Bottleneck, make_blocks

        super().__init__(inputs)
        shape, channels = RESNETS[settings.name], settings.channels
        blocks = blocks or shape.blocks
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck if shape.bottleneck else BasicBlock
        norm = norm_layer(settings, NORM)
        self.width = channels[-1] * block.expansion
        self.published_name = settings.name.replace("resnet", "ResNet-")
        self.size_text = (
            f"width {settings.width:g}, stem {settings.stem}, {'-'.join(map(str, blocks))} blocks, "
            f"{inputs.channels} channels, norm {settings.norm}"
        )
        self.pools = settings.stem == "imagenet"
        kernel, stride = (7 if self.pools else 3), (1 if settings.stem == "cifar" else 2)
        self.conv1 = nn.Conv2d(inputs.channels, channels[0], kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = norm(channels[0])
        stages, _ = make_blocks((block,) * 4, channels, blocks, inplanes=channels[0], norm_layer=norm)
        self.stages = [name for name, _ in stages]
        for name, stage in stages:
            self.add_module(name, stage)
        initialise_convolutions(self)
        if norm is nn.Identity:
            last = "conv3" if shape.bottleneck else "conv2"
            shrink_branches([getattr(unit, last) for unit in self.modules() if isinstance(unit, block)])

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to the last map [B, D, h, w].

        h = ceil(H / 32), w = ceil(W / 32); with the stem small 16 and with cifar 8 instead of 32.
        """
        x = F.relu(self.bn1(self.conv1(self.normalise(x))))  # [B, first channels, H/2, W/2]
        if self.pools:
            x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)  # [B, first channels, H/4, W/4]
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return x

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to the mean [B, D] over the last map's positions."""
        mean: Tensor = self(x).mean((2, 3))
        return mean
