"""Image encoders. Letters: B batch, H and W image height and width, D channels of the last map, h and w its size."""

import pickle
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.backbone_settings import BackboneSettings, InputFormat
from models.errors import UserError

# Mean and standard deviation of ImageNet's training images, per channel, for inputs in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
NORMALISATIONS = {"imagenet": (IMAGENET_MEAN, IMAGENET_STD), "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))}
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
# Errors of reading a weight file that is damaged or of another program
NO_STATE_DICT = (LookupError, AttributeError, TypeError, StopIteration)
UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, AssertionError, pickle.UnpicklingError, *NO_STATE_DICT)
PUBLISHED_SIZE = "width 1.0, stem imagenet (model.timm: width 1.0, depth 1.0, the variant's own patch)"
RESNET18 = (2, 2, 2, 2)  # basic blocks of each stage
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


class ResNetTokens(Backbone):
    """ResNet-18 from its stem to its last stage, without pooling and classifier ; also ResNet-50.

    Built of timm's blocks under torchvision's parameter names. timm's own ResNet has 64 stem channels at every width,
    so the stem is built here.

    Args:
        settings: Width and stem of the network.
        blocks: Blocks of each stage.
        bottleneck: ResNet-50's blocks, which end in four times the channels, instead of ResNet-18's.
        inputs: Channels and normalisation of the input.
    """

    classifier = "fc."

    def __init__(
        self,
        settings: BackboneSettings,
        blocks: tuple[int, ...] = RESNET18,
        bottleneck: bool = False,
        inputs: InputFormat = COLOUR,
    ) -> None:
        from timm.models.resnet import BasicBlock, Bottleneck, make_blocks

        super().__init__(inputs)
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck if bottleneck else BasicBlock
        channels = settings.channels
        self.width = channels[-1] * block.expansion
        self.published_name = "ResNet-50" if bottleneck else "ResNet-18"
        self.size_text = f"width {settings.width:g}, stem {settings.stem}, {'-'.join(map(str, blocks))} blocks"
        self.small = settings.stem == "small"
        kernel = 3 if self.small else 7
        self.conv1 = nn.Conv2d(
            inputs.channels, channels[0], kernel_size=kernel, stride=2, padding=kernel // 2, bias=False
        )
        self.bn1 = nn.BatchNorm2d(channels[0])
        stages, _ = make_blocks((block,) * 4, channels, blocks, inplanes=channels[0])
        self.stages = [name for name, _ in stages]
        for name, stage in stages:
            self.add_module(name, stage)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):  # He, as torchvision's ResNets
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to the last map [B, D, h, w].

        h = ceil(H / 32), w = ceil(W / 32); with the small stem 16 instead of 32.
        """
        x = F.relu(self.bn1(self.conv1(self.normalise(x))))  # [B, first channels, H/2, W/2]
        if not self.small:
            x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)  # [B, first channels, H/4, W/4]
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return x

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to the mean [B, D] over the last map's positions."""
        mean: Tensor = self(x).mean((2, 3))
        return mean


def load_backbone_weights(backbone: Backbone, path: Path) -> None:
    """Load the tensors of a file into a backbone: a published network, or a backbone of the same size.

    A published network's classifier is left out; of a model of this program, such as a finished round's, only the
    tensors under ``backbone.`` are loaded.

    Raises:
        UserError: The file is missing, damaged, of another network or size (the message names the first tensors that
            don't fit, with both shapes), or a tensor in it is not a plain one of finite real numbers.
    """
    target = backbone.published
    tensors = _read_tensors(path, backbone.published_name)
    within = next(name for name, module in backbone.named_modules() if module is target)
    whole = f"backbone.{within}." if within else "backbone."
    if any(name.startswith(whole) for name in tensors):
        state = {name.removeprefix(whole): tensor for name, tensor in tensors.items() if name.startswith(whole)}
    else:
        state = {name: tensor for name, tensor in tensors.items() if not name.startswith(backbone.classifier)}
    state, own = backbone.adapt(state), target.state_dict()
    # Files of early PyTorch versions lack the batch counters; training restarts them anyway.
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    unknown = [name for name in state if name not in own]
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if missing or unknown or shapes:
        parts = [("missing", missing), (f"not in a {backbone.published_name}", unknown), ("other shape", shapes)]
        raise UserError(
            "these weights do not fit the backbone",
            where=path,
            expected=f"the tensors of a {backbone.published_name} with {backbone.size_text}",
            found="; ".join(f"{kind}: {_first(names)} ({len(names)})" for kind, names in parts if names),
            hint=f"published files fit {PUBLISHED_SIZE}; another size can start from a file of that very size, such as "
            "the model of a finished run (rounds/NNNN/model.safetensors), or without weights",
        )
    _check_values(state, path)
    target.load_state_dict(state, strict=False)


def _first(names: Sequence[str]) -> str:
    """Return the first three names, each shortened: a foreign file's names may be any text."""
    return ", ".join(name if len(name) <= 120 else f"{name[:117]}..." for name in names[:3])


def _check_values(state: dict[str, Tensor], path: Path) -> None:
    for name, tensor in state.items():
        found = None
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            found = f"{name} is sparse, quantised or without values"
        elif tensor.is_complex() or tensor.dtype == torch.bool:
            found = f"{name} is {tensor.dtype}"
        elif not torch.isfinite(tensor.float()).all():  # .float(): isfinite knows not every 8-bit float
            found = f"{name} holds NaN or infinity"
        if found:
            expected = "tensors of finite real numbers"
            raise UserError("the backbone's weights cannot be used", where=path, expected=expected, found=found)


def unread(error: Exception) -> str:
    """Return in one line why a weight file could not be read.

    PyTorch suggests ``weights_only=False``, which would execute code from the file; the suggestion is not passed on.
    """
    line = f"{type(error).__name__}: {error}".split("\n")[0]
    if isinstance(error, NO_STATE_DICT):
        return f"it is damaged or no state dict ({line})"
    if "weights_only" not in str(error):
        return line
    objects = "TorchScript" in line or re.search(r"\bGLOBAL\b", str(error))
    return "it holds Python objects, which are not executed" if objects else "it is damaged, or holds no tensors"


def _read_tensors(path: Path, published_name: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors or a PyTorch file; nothing in the file is executed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    expected = f"a .safetensors, .pth or .pt file with the tensors of a {published_name}"
    if not path.is_file():
        raise UserError(
            "the backbone's weight file does not exist", where=path, expected=expected, found="no such file"
        )
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (*UNREADABLE, SafetensorError) as error:
        raise UserError(
            "the backbone's weights cannot be read", where=path, expected=expected, found=unread(error)
        ) from error
    named = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if not named or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError("the backbone's weights are not a state dict", where=path, expected="name -> tensor")
    return state
